package passkeytest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// A Browser opens links of the page with an authenticator.
type Browser struct {
	Authenticator *Authenticator
	Origin        string // that the client data names; default: the link's
	Dial          string // HOST:PORT to connect to; default: the link's
	Alter         func(answer map[string]json.RawMessage)

	// Confirming signs with another authenticator than the new passkey's.
	Confirming *Authenticator
}

// An Offer is what the page was given.
type Offer struct {
	Kind    string          `json:"kind"`
	Admin   string          `json:"admin"`
	Card    json.RawMessage `json:"card"`
	Create  json.RawMessage `json:"create"`
	Confirm json.RawMessage `json:"confirm"`
	Sign    json.RawMessage `json:"sign"`
}

// A Refusal is an answer that is no success.
type Refusal struct {
	Status                   int
	Code, Message, Hint, Raw string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%d %s: %s (%s)", r.Status, r.Code, r.Message, r.Hint)
}

// Open plays a link to its end, as a person would who clicks what there is to
// click. It returns the ticket's state, "" for an enrolment.
func (b *Browser) Open(ctx context.Context, link string) (state string, err error) {
	o, err := b.Begin(ctx, link)
	if err != nil {
		return "", err
	}
	return b.Finish(ctx, link, o)
}

// Begin asks for a challenge.
func (b *Browser) Begin(ctx context.Context, link string) (o Offer, err error) {
	_, token, _ := strings.Cut(link, "#")
	err = b.post(ctx, link, "/begin", map[string]any{"token": token}, &o)
	return o, err
}

// Finish answers it.
func (b *Browser) Finish(ctx context.Context, link string, o Offer) (state string, err error) {
	u, err := url.Parse(link)
	if err != nil {
		return "", err
	}
	origin := b.Origin
	if origin == "" {
		origin = u.Scheme + "://" + u.Host
	}
	token, _ := json.Marshal(u.Fragment) // strings always marshal
	answer := map[string]json.RawMessage{"token": token}
	confirming := b.Confirming
	if confirming == nil {
		confirming = b.Authenticator
	}
	for _, step := range []struct {
		name    string
		options json.RawMessage
		play    func(json.RawMessage, string) (json.RawMessage, error)
	}{{"confirm", o.Confirm, confirming.Get}, {"create", o.Create, b.Authenticator.Create}, {"sign", o.Sign, b.Authenticator.Get}} {
		if len(step.options) == 0 {
			continue
		}
		if answer[step.name], err = step.play(step.options, origin); err != nil {
			return "", err
		}
	}
	if b.Alter != nil {
		b.Alter(answer)
	}
	var done struct{ State string }
	err = b.post(ctx, link, "/finish", answer, &done)
	return done.State, err
}

func (b *Browser) post(ctx context.Context, link, path string, in, out any) error {
	u, err := url.Parse(link)
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.Scheme+"://"+u.Host+u.Path+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", u.Scheme+"://"+u.Host)
	t := &http.Transport{DisableKeepAlives: true}
	if b.Dial != "" {
		t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, b.Dial)
		}
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		r := &Refusal{Status: resp.StatusCode, Raw: string(raw)}
		_ = json.Unmarshal(raw, r) // what is not JSON stays in Raw
		return r
	}
	return json.Unmarshal(raw, out)
}
