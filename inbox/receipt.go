package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/postroom/postroom/inbox/internal/ledger"
)

// receipts keeps what external handlers have called.
type receipts struct {
	starting ledger.Group[*ledger.Step]
	ending   ledger.Group[*ledger.Step]
}

func newReceipts(in *Inbox) *receipts {
	r := &receipts{}
	r.starting.Write, r.ending.Write = in.db.StartSteps, in.db.FinishSteps
	return r
}

// stepKey is what a vendor is given to recognise a repetition: 32 hexadecimal
// digits, the same for each attempt at a step of an event in one revision.
func stepKey(instance string, cl *claim, name string) string {
	h := sha256.New()
	for _, part := range []string{instance, cl.c.sub.Name, cl.Key, name} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // so that no two lists read the same
	}
	_, _ = fmt.Fprintf(h, "%d", cl.Revision)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
