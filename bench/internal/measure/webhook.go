package measure

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	_ "embed" // the statement
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/schema"
	"github.com/postroom/postroom/webhook"
)

//go:embed sql/webhook_keep.sql
var webhookKeepSQL string

// webhookWorkers is how many workers run accepted events, and webhookPart the part of
// Config.Events that they run.
const (
	webhookWorkers = 8
	webhookPart    = 20
)

// webhookKey is the secret of the webhooks that are measured.
const webhookKey = "bench bench bench bench!"

func webhookScheme() webhook.Scheme {
	return webhook.Standard(base64.StdEncoding.EncodeToString([]byte(webhookKey)))
}

// ackTrial measures how many webhooks are acknowledged in a second by what handle returns.
func ackTrial(handle func(e *endpoint, warn inbox.Config) (http.Handler, error)) trial {
	return func(ctx context.Context, b *bench) (_ sample, err error) {
		e, err := openEndpoint(ctx, b)
		if err != nil {
			return sample{}, err
		}
		handler, err := handle(e, inbox.Config{Schema: e.schema, Logger: warnings(b.cfg.Logger)})
		if err != nil {
			return sample{}, err
		}
		stop, err := e.serve(handler)
		if err != nil {
			return sample{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return throughput(ctx, b, e.sendWebhook)
	}
}

// sendWebhook sends a signed webhook with an id of its own, and reads its answer.
func (e *endpoint) sendWebhook(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/orders", bytes.NewReader(e.data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	m := webhook.Message{ID: fmt.Sprintf("msg_%012d", e.serial.Add(1)), Time: time.Now()}
	if err := webhook.Sign(webhookScheme(), req.Header, m, e.data); err != nil {
		return err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %d: %.200s", resp.StatusCode, text)
	}
	return err
}

// webhookReceived receives webhooks with package webhook.
func webhookReceived(e *endpoint, cfg inbox.Config) (http.Handler, error) {
	in := inbox.New(e.pool, nil, cfg)
	in.Declare(inbox.Subscription{Name: "bench"})
	return webhook.New(in, webhook.Config{Source: "/bench", Handler: "bench", Scheme: webhookScheme(), Logger: cfg.Logger}), nil
}

// webhookByHand receives them as a service would without Postroom: it verifies the
// signature, inserts a row and answers.
func webhookByHand(e *endpoint, _ inbox.Config) (http.Handler, error) {
	keep := schema.In(e.schema, webhookKeepSQL)
	receive := func(r *http.Request) (int, error) {
		body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, postroom.MaxData))
		if err != nil {
			return http.StatusBadRequest, err
		}
		id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
		seconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
			return http.StatusUnauthorized, errors.New("stale")
		}
		mac := hmac.New(sha256.New, []byte(webhookKey))
		_, _ = io.WriteString(mac, id+"."+at+".")
		_, _ = mac.Write(body)
		sent, _ := strings.CutPrefix(r.Header.Get("webhook-signature"), "v1,")
		signature, err := base64.StdEncoding.DecodeString(sent)
		if err != nil || !hmac.Equal(signature, mac.Sum(nil)) {
			return http.StatusUnauthorized, errors.New("wrong signature")
		}
		var event struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(body, &event); err != nil {
			return http.StatusBadRequest, err
		}
		if _, err := e.pool.Exec(r.Context(), keep, id, event.Type, body); err != nil {
			return http.StatusServiceUnavailable, err
		}
		return http.StatusOK, nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, err := receive(r); err != nil {
			http.Error(w, err.Error(), status)
		}
	}), nil
}

// effectTrial measures how many accepted events take effect in a second.
func effectTrial(ctx context.Context, b *bench) (sample, error) {
	e, err := openEndpoint(ctx, b)
	if err != nil {
		return sample{}, err
	}
	in := inbox.New(e.pool, nil, inbox.Config{Schema: e.schema, Logger: warnings(b.cfg.Logger)})
	in.Handle(inbox.Subscription{Name: "bench", Workers: webhookWorkers}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
		return e.place(ctx, tx)
	}))
	events := max(b.cfg.Events/webhookPart, 1)
	for left := events; left > 0; {
		all := make([]inbox.Acceptance, min(left, 100))
		for i := range all {
			all[i] = inbox.Acceptance{Handler: "bench", Event: postroom.Event{ID: fmt.Sprint(left - i), Source: "/bench", Type: "bench", Data: e.data}}
		}
		if _, err := in.AcceptAll(ctx, all...); err != nil {
			return sample{}, err
		}
		left -= len(all)
	}
	if err := b.rest(ctx); err != nil {
		return sample{}, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- in.Run(running) }()
	var took time.Duration
	err = b.timed(func() error {
		for {
			left, err := in.Lag(ctx)
			if err != nil {
				return err
			}
			if left[0].Retrying == 0 {
				took = time.Since(began)
				return nil
			}
			sleep(ctx, 5*time.Millisecond)
		}
	})
	stop()
	return sample{value: float64(events) / took.Seconds()}, errors.Join(err, <-ended)
}
