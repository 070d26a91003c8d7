package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A said is how a command of ours ended.
type said struct {
	code           int
	stdout, stderr string
}

func (r said) String() string {
	return fmt.Sprintf("exit %d: %s%s", r.code, strings.TrimSpace(r.stdout), strings.TrimSpace(r.stderr))
}

// sallyport runs one of our own commands on the demo's data folder.
func (s *story) sallyport(ctx context.Context, stdin string, args ...string) (said, error) {
	argv := slices.Concat(s.Self, args, []string{"--data", s.data})
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// An agent's calls come from a session of their own: in the admin's, who is
	// logged in, they would be the admin's, and nobody decides on their own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: len(args) > 0 && args[0] == "call"}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return said{}, err
	}
	return said{cmd.ProcessState.ExitCode(), out.String(), errs.String()}, nil
}

// must is sallyport, where anything but success ends the demo.
func (s *story) must(ctx context.Context, stdin string, args ...string) (said, error) {
	r, err := s.sallyport(ctx, stdin, args...)
	if err == nil && r.code != 0 {
		err = fmt.Errorf("sallyport %s: %s", args[0], r)
	}
	return r, err
}

// An answer is what `sallyport call --json` prints, on success and on failure.
type answer struct {
	CallID  string          `json:"call_id"`
	Result  json.RawMessage `json:"result"`
	IsError bool            `json:"is_error"`
	Replay  bool            `json:"replay"`
	Error   struct {
		Code, Step, Message, Ticket string
	} `json:"error"`
}

// call calls a tool as the demo's agent.
func (s *story) call(ctx context.Context, tool string, args any, more ...string) (answer, int, error) {
	b, err := json.Marshal(args)
	if err != nil {
		return answer{}, 0, err
	}
	if raw, ok := args.(json.RawMessage); ok {
		b = raw
	}
	r, err := s.sallyport(ctx, "", append([]string{"call", tool, string(b), "--json"}, more...)...)
	if err != nil {
		return answer{}, 0, err
	}
	var a answer
	if err := json.Unmarshal([]byte(r.stdout), &a); err != nil {
		return a, r.code, fmt.Errorf("sallyport call %s: %s", tool, r)
	}
	return a, r.code, nil
}

// seen asks the canary.
func (s *story) seen(ctx context.Context) (r report, err error) {
	err = s.getJSON(ctx, "http://"+s.addr+"/report", &r)
	return r, err
}

// getJSON asks on a connection of its own, so that the canary can count.
func (s *story) getJSON(ctx context.Context, url string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	if v == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(v)
}
