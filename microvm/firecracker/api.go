package firecracker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"sallyport.dev/sallyport"
)

// A request is one call of Firecracker's API.
type request struct {
	method, path string
	body         any
}

// The bodies. Firecracker refuses members that it does not know.
type (
	machineConfig struct {
		VcpuCount  int   `json:"vcpu_count"`
		MemSizeMiB int64 `json:"mem_size_mib"`
	}
	bootSource struct {
		KernelImagePath string `json:"kernel_image_path"`
		InitrdPath      string `json:"initrd_path"`
		BootArgs        string `json:"boot_args"`
	}
	drive struct {
		DriveID      string `json:"drive_id"`
		PathOnHost   string `json:"path_on_host"`
		IsRootDevice bool   `json:"is_root_device"`
		IsReadOnly   bool   `json:"is_read_only"`
	}
	vsock struct {
		GuestCID int    `json:"guest_cid"`
		UDSPath  string `json:"uds_path"`
	}
	action struct {
		ActionType string `json:"action_type"`
	}
	vmState struct {
		State string `json:"state"` // "Paused" or "Resumed"
	}
	snapshotCreate struct {
		SnapshotType string `json:"snapshot_type"`
		SnapshotPath string `json:"snapshot_path"`
		MemFilePath  string `json:"mem_file_path"`
	}
	memBackend struct {
		BackendType string `json:"backend_type"`
		BackendPath string `json:"backend_path"`
	}
	vsockOverride struct {
		UDSPath string `json:"uds_path"`
	}
	snapshotLoad struct {
		SnapshotPath  string        `json:"snapshot_path"`
		MemBackend    memBackend    `json:"mem_backend"`
		VsockOverride vsockOverride `json:"vsock_override"`
		ClockRealtime bool          `json:"clock_realtime"`
		ResumeVM      bool          `json:"resume_vm"`
	}
)

const (
	maxReply      = 64 << 10
	replyPatience = 10 * time.Second
)

// A client calls the API of one Firecracker.
type client struct {
	http     *http.Client
	patience time.Duration // for one reply
}

func newClient(j *jail) *client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return j.dial(ctx, apiSocket) }
	return &client{
		patience: replyPatience,
		http: &http.Client{
			Transport: &http.Transport{DialContext: dial, MaxConnsPerHost: 1, MaxResponseHeaderBytes: maxReply, DisableCompression: true},
			// It has nothing to send us to.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// do asks for something that has no result but that it was done.
func (c *client) do(ctx context.Context, r request) error {
	within, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	body, err := json.Marshal(r.body)
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(within, r.method, "http://localhost"+r.path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json")
	what := r.method + " " + r.path
	a, err := c.http.Do(q)
	if err != nil {
		return silent(ctx, what, c.patience, err)
	}
	defer a.Body.Close()
	said, err := io.ReadAll(io.LimitReader(a.Body, maxReply+1))
	switch {
	case err != nil:
		return silent(ctx, what, c.patience, err)
	case len(said) > maxReply:
		return unavailable("Firecracker's reply to "+what+" has more than 64 KiB", "it is not the Firecracker that was started: end its sandboxes", nil)
	case a.StatusCode != http.StatusNoContent:
		return refusal(what, a.StatusCode, said)
	}
	return nil
}

// silent words a reply that did not come.
func silent(ctx context.Context, what string, patience time.Duration, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return unavailable(fmt.Sprintf("Firecracker did not answer %s within %v", what, patience), "the host may be overloaded; nothing of this guest goes on", err)
	}
	return unavailable("Firecracker ended, or cut the line, at "+what, "its last words are in the log", err)
}

// refusal words a reply that is not success. What Firecracker says in it is quoted.
func refusal(what string, status int, said []byte) error {
	message := fmt.Sprintf("Firecracker refused %s (%d): %.300q", what, status, fault(said))
	hint := "is firecracker of release " + oldest + " or newer, and of the jailer's? Then this is a defect of ours"
	if status >= 500 {
		hint = "it is a failure of Firecracker's or of the host's: memory, disk, /dev/kvm"
	}
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute, Message: message, Hint: hint}
}

// fault takes the message out of the body of an error, or what stands in its place.
func fault(body []byte) string {
	var e struct {
		Message string `json:"fault_message"`
	}
	if err := json.Unmarshal(body, &e); err == nil && e.Message != "" {
		return e.Message
	}
	return string(body)
}
