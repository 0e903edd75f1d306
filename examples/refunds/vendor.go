package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/postroom/postroom/outbound"
)

// vendor is the provider, as the service sees it.
type vendor struct {
	api *outbound.Client
	url string
}

// receipt is the provider's final answer. The request's step "provider" records it. A decline is a
// final answer too: after a decline, the service does not call the provider again.
type receipt struct {
	Ref      string `json:"ref"`
	Declined string `json:"declined,omitempty"`
}

// instruction is the request to the provider. All calls with one key have the same instruction.
type instruction struct {
	Of     string `json:"of,omitempty"` // in a refund, the provider's name for the charge
	Amount int64  `json:"amount"`
}

// move makes the provider move money. This process or another may call the method move again with
// the same key, which the provider recognises. The outbound client decides how often it tries, and
// how long it waits between attempts.
func (v *vendor) move(ctx context.Context, k kind, key string, r reservation) (receipt, error) {
	text, err := json.Marshal(instruction{Of: r.Of, Amount: r.Movement.Amount})
	if err != nil {
		return receipt{}, fmt.Errorf("write instruction: %w", err)
	}
	req, err := http.NewRequestWithContext(outbound.WithKey(ctx, key), http.MethodPost, v.url+"/v1"+k.path, bytes.NewReader(text))
	if err != nil {
		return receipt{}, fmt.Errorf("call provider: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	body, err := v.api.Fetch(req)
	var failed *outbound.Error
	if errors.As(err, &failed) && failed.Last != nil && failed.Last.Status == http.StatusPaymentRequired {
		body, err = failed.Last.Body, nil
	}
	if err != nil {
		return receipt{}, err
	}
	var got receipt
	if err := json.Unmarshal(body, &got); err != nil {
		return receipt{}, fmt.Errorf("read receipt: %w", err)
	}
	return got, nil
}
