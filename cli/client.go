package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

// API calls the admin API through the socket in the data folder: method and
// path, in as the JSON body (nil for none), out for the answer.
func (a *App) API(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	resp, err := a.Stream(ctx, method, path, body, 0)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return unreachable(a.socket(), err)
	}
	if raw, ok := out.(*json.RawMessage); ok {
		*raw = b
		return nil
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

func (a *App) socket() string { return filepath.Join(a.Data, "admin.sock") }

// Stream calls the admin API with a body that is not held in memory, of size
// bytes (0: as many as there are, -1: not known), and returns its good answer.
func (a *App) Stream(ctx context.Context, method, path string, body io.Reader, size int64) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, a.socket()) },
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://gateway/api/v1"+path, body)
	if err != nil {
		return nil, err
	}
	if size != 0 {
		req.ContentLength = size
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, unreachable(a.socket(), err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, adminapi.MaxBody))
	if err != nil {
		return nil, unreachable(a.socket(), err)
	}
	return nil, failureOf(resp.StatusCode, b)
}

// dial connects to a unix socket, also where its path is longer than the
// address of a socket may be.
func dial(ctx context.Context, path string) (net.Conn, error) {
	if len(path) > adminapi.MaxSocketPath {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: err}
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

func unreachable(socket string, err error) error {
	if errors.Is(err, context.Canceled) {
		return &sallyport.Error{Code: sallyport.Canceled, Message: "interrupted", Err: err}
	}
	if errors.Is(err, fs.ErrPermission) {
		return &sallyport.Error{Code: sallyport.Denied, Message: "this user may not reach " + socket, Err: err,
			Hint: "use the account that ran `sallyport init`, or root"}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return &sallyport.Error{Code: sallyport.Unavailable, Message: "no gateway answers on " + socket, Err: err,
			Hint: "start one with `sallyport serve`, or name its data folder with --data or $SALLYPORT_DATA"}
	}
	return &sallyport.Error{Code: sallyport.Unavailable, Message: "the gateway went away before it answered", Err: err,
		Hint: "what it did until then is on record: start it again, then `sallyport audit search`"}
}

// Elsewhere says what lists the things of which one was not found. It is said
// here and not by the gateway, whose answer for what does not exist must be
// that for what belongs to somebody else.
func Elsewhere(err error, list string) error {
	if e, ok := errors.AsType[*sallyport.Error](err); ok && e.Code == sallyport.NotFound && e.Hint == "" {
		e.Hint = "`" + list + "` shows what there is"
	}
	return err
}

func failureOf(status int, body []byte) error {
	var f adminapi.Failure
	if err := json.Unmarshal(body, &f); err != nil || f.Code == "" {
		return fmt.Errorf("the gateway answered %d: %.200s", status, body)
	}
	return &sallyport.Error{Code: f.Code, Step: f.Step, Message: f.Message, Hint: f.Hint, Ticket: f.Ticket, CallID: f.CallID,
		RetryAfter: time.Duration(f.RetryAfter * float64(time.Second))}
}

// Did makes a change and says so.
func (a *App) Did(cmd *cobra.Command, method, path string, in any, done string) error {
	if err := a.API(cmd.Context(), method, path, in, nil); err != nil {
		return err
	}
	return a.Show(map[string]bool{"ok": true}, func() error { _, err := fmt.Fprintln(a.Out, visible.String(done)); return err })
}
