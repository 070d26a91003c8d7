package sandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// sessionLanguage marks the tool that looks after sessions among those that run
// code: it is judged and bounded like them.
const sessionLanguage = "session"

// maxPiece bounds what one call reads of a file or of a job's output. More is
// read piece by piece; a transfer of the admin API has no such bound.
const maxPiece = 512 << 10

func sessionTool() sallyport.Tool {
	path := schema{"type": "string", "maxLength": 4096, "description": "Relative to the session's working folder."}
	return sallyport.Tool{
		Name:        sallyport.FilesTool,
		Description: "Looks after your sessions of run_python, run_javascript and run_shell: list them, end one, fork one, read the output of a background job, and list, read and write files.",
		InputSchema: marshal(schema{
			"type": "object", "required": []string{"action"}, "additionalProperties": false,
			"properties": schema{
				"action": schema{"type": "string", "enum": []string{"list", "end", "fork", "output", "files", "get", "put"},
					"description": "list: your sessions. end: end one. fork: copy one of tier microvm as it is, with all that its programs hold in memory, to each of names. output: of a job, from offset on. files: what is in the folder path. get: read the file path. put: write it."},
				"session":  schema{"type": "string", "pattern": sessionPattern, "maxLength": 64, "description": "Name of the session; for all but list."},
				"names":    schema{"type": "array", "minItems": 1, "maxItems": 8, "uniqueItems": true, "items": schema{"type": "string", "pattern": sessionPattern, "maxLength": 64}, "description": "Of the copies, for fork: new sessions."},
				"path":     path,
				"job":      schema{"type": "integer", "minimum": 1, "maximum": math.MaxUint32, "description": "Number of the job, for output."},
				"offset":   schema{"type": "integer", "minimum": 0, "maximum": 1 << 40, "description": "Where to begin, for output and get: the next of the answer before."},
				"length":   schema{"type": "integer", "minimum": 1, "maximum": maxPiece, "description": "How many bytes to get at most."},
				"content":  schema{"type": "string", "maxLength": maxText, "description": "What to put."},
				"encoding": schema{"type": "string", "enum": []string{"base64"}, "description": "Of content, where it is not text."},
			},
		}),
		Origin:   sallyport.Origin{Backend: "sandbox", Name: sallyport.FilesTool},
		Code:     &sallyport.Script{Language: sessionLanguage},
		Manifest: sallyport.Manifest{Trust: "agent", Tiers: []string{sallyport.TierGVisor}},
	}
}

// sessionArgs are the tool's arguments.
type sessionArgs struct {
	Action, Session, Path, Content, Encoding string
	Names                                    []string
	Job                                      uint32
	Offset                                   int64
	Length                                   int64
}

// session does what the tool is asked for.
func (b *Backend) session(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	var a sessionArgs
	if err := json.Unmarshal(job.Args, &a); err != nil {
		return sallyport.Output{}, refuse(sallyport.Invalid, "see the tool's input schema", "the arguments are not those of %s", sallyport.FilesTool)
	}
	if a.Action == "list" {
		return b.sessions(ctx, owner(job.Who))
	}
	if err := checkSession(a.Session); err != nil {
		return sallyport.Output{}, err
	}
	ref := &sandboxpb.SessionRef{Owner: owner(job.Who), Name: a.Session, Terms: []string{profileTerm(job.Profile)}}
	var v any
	var err error
	switch a.Action {
	case "end":
		_, err = b.api.EndSession(ctx, ref)
		v = map[string]any{"ended": a.Session}
	case "fork":
		v, err = b.fork(ctx, ref, a.Names)
	case "output":
		return b.jobOutput(ctx, ref, a)
	case "files":
		v, err = b.files(ctx, ref, a.Path)
	case "get":
		return b.get(ctx, ref, a, job.Transfer)
	case "put":
		v, err = b.put(ctx, ref, a, job.Transfer)
	default:
		return sallyport.Output{}, refuse(sallyport.Invalid, "list, end, fork, output, files, get or put", "there is no action %.40q", a.Action)
	}
	if err != nil {
		return sallyport.Output{}, over(ctx, err)
	}
	return said(v)
}

// fork copies a session as it is.
func (b *Backend) fork(ctx context.Context, ref *sandboxpb.SessionRef, names []string) (any, error) {
	for _, name := range names {
		if err := checkSession(name); err != nil {
			return nil, err
		}
	}
	reply, err := b.api.ForkSession(ctx, &sandboxpb.ForkSessionRequest{Session: ref, Names: names})
	return map[string]any{"forked": ref.Name, "siblings": names, "paused_ms": float64(reply.GetPausedUs()) / 1000}, err
}

// over is a failure of the host, unless it is the caller's, who went away or
// asked for what cannot be.
func over(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ours := errors.AsType[*sallyport.Error](err); ours {
		return err
	}
	return sandboxpb.FromStatus(err)
}

// said is a result of one object, for programs and for readers.
func said(v any, more ...any) (sallyport.Output, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return sallyport.Output{}, err
	}
	if more == nil {
		more = []any{content{"text", string(text)}}
	}
	b, err := json.Marshal(map[string]any{"content": more, "structuredContent": v, "isError": false})
	return sallyport.Output{Content: b}, err
}

func (b *Backend) sessions(ctx context.Context, owner string) (sallyport.Output, error) {
	reply, err := b.api.Sessions(ctx, &sandboxpb.SessionsRequest{Owner: owner})
	if err != nil {
		return sallyport.Output{}, over(ctx, err)
	}
	type info struct {
		Name      string    `json:"session"`
		SandboxID string    `json:"sandbox_id,omitempty"`
		Since     time.Time `json:"since"`
		Used      time.Time `json:"used"`
		Jobs      int32     `json:"jobs"`
		Frozen    bool      `json:"frozen"`
	}
	all := []info{}
	for _, s := range reply.Sessions {
		all = append(all, info{s.Name, s.SandboxId, time.UnixMilli(s.SinceUnixMs).UTC(), time.UnixMilli(s.UsedUnixMs).UTC(), s.Jobs, s.Frozen})
	}
	return said(map[string]any{"sessions": all})
}

func (b *Backend) jobOutput(ctx context.Context, ref *sandboxpb.SessionRef, a sessionArgs) (sallyport.Output, error) {
	r, err := b.api.Job(ctx, &sandboxpb.JobRequest{Session: ref, Job: a.Job, Offset: a.Offset})
	if err != nil {
		return sallyport.Output{}, over(ctx, err)
	}
	piece := r.Output[:min(len(r.Output), maxPiece)]
	if r.Running || r.Truncated || len(piece) < len(r.Output) { // the rest of a character comes with the next, or never
		piece = wholeText(piece)
	}
	v := map[string]any{
		"job": a.Job, "running": r.Running, "next": r.Next - int64(len(r.Output)-len(piece)), "truncated": r.Truncated,
		"more": len(r.Output) > maxPiece,
	}
	v["output"], v["encoding"] = lossless(piece)
	if v["encoding"] == "" {
		delete(v, "encoding")
	}
	if !r.Running {
		v["exit_code"] = r.ExitCode
		if r.Signal != "" {
			v["signal"] = r.Signal
		}
	}
	return said(v)
}

// A fileInfo is one entry of a folder.
type fileInfo struct {
	Name string    `json:"name"`
	Kind string    `json:"kind"`
	Size int64     `json:"size"`
	Time time.Time `json:"time"`
	Raw  string    `json:"name_base64,omitempty"` // of a name that is not text
}

func (b *Backend) files(ctx context.Context, ref *sandboxpb.SessionRef, path string) (any, error) {
	r, err := b.api.ListFiles(ctx, &sandboxpb.ListFilesRequest{Session: ref, Path: path})
	if err != nil {
		return nil, err
	}
	all := make([]fileInfo, 0, len(r.Entries))
	for _, e := range r.Entries {
		f := fileInfo{string(e.Name), e.Kind, e.Size, time.UnixMilli(e.TimeUnixMs).UTC(), ""}
		if !utf8.Valid(e.Name) {
			f.Raw = base64.StdEncoding.EncodeToString(e.Name)
		}
		all = append(all, f)
	}
	return map[string]any{"files": all, "more": r.More}, nil
}

// get reads a file: a piece of it into the result, or all of it into a transfer.
func (b *Backend) get(ctx context.Context, ref *sandboxpb.SessionRef, a sessionArgs, t *sallyport.Transfer) (sallyport.Output, error) {
	req := &sandboxpb.GetFileRequest{Session: ref, Path: a.Path, Offset: a.Offset, Length: -1}
	var piece bytes.Buffer
	var to io.Writer = &piece
	if t != nil && t.To != nil {
		to = t.To
	} else if req.Length = a.Length; a.Length == 0 {
		req.Length = maxPiece
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := b.api.GetFile(ctx, req)
	if err != nil {
		return sallyport.Output{}, over(ctx, err)
	}
	var n, size int64
	for done := false; !done; {
		m, err := stream.Recv()
		if err != nil {
			return sallyport.Output{}, over(ctx, err)
		}
		switch m := m.Message.(type) {
		case *sandboxpb.GetFileReply_Data:
			k, err := to.Write(m.Data)
			if n += int64(k); err != nil {
				return sallyport.Output{}, fmt.Errorf("handing the file on: %w", err)
			}
		case *sandboxpb.GetFileReply_Size:
			size, done = m.Size, true
		}
	}
	content := piece.Bytes()
	if text := wholeText(content); len(text) > 0 && a.Offset+n < size && to == &piece { // the next begins where a character does
		content, n = text, int64(len(text))
	}
	v := map[string]any{"path": a.Path, "size": size, "next": a.Offset + n, "more": a.Offset+n < size}
	if to != &piece {
		return said(v)
	}
	return said(v, artifact("session://"+a.Session+"/", a.Path, content))
}

// put writes a file: what the arguments hold, or what a transfer brings.
func (b *Backend) put(ctx context.Context, ref *sandboxpb.SessionRef, a sessionArgs, t *sallyport.Transfer) (any, error) {
	var from io.Reader
	var size int64
	switch {
	case t != nil && t.From != nil:
		from, size = t.From, t.Size
	case a.Encoding == "base64":
		raw, err := base64.StdEncoding.DecodeString(a.Content)
		if err != nil {
			return nil, refuse(sallyport.Invalid, "encode it with the standard alphabet and padding", "content is not base64")
		}
		from, size = bytes.NewReader(raw), int64(len(raw))
	default:
		from, size = bytes.NewReader([]byte(a.Content)), int64(len(a.Content))
	}
	n, err := b.putFrom(ctx, &sandboxpb.PutFileStart{Session: ref, Path: a.Path, Size: size}, from)
	return map[string]any{"path": a.Path, "size": n}, err
}

// putFrom streams a file to the host. A source that fails never becomes a file:
// the stream is then cancelled and not closed.
func (b *Backend) putFrom(ctx context.Context, start *sandboxpb.PutFileStart, from io.Reader) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := b.api.PutFile(ctx)
	if err != nil {
		return 0, err
	}
	err = stream.Send(&sandboxpb.PutFileRequest{Message: &sandboxpb.PutFileRequest_Start{Start: start}})
	buf := make([]byte, 256<<10)
	for err == nil {
		var n int
		n, err = from.Read(buf)
		if n > 0 {
			if sendErr := stream.Send(&sandboxpb.PutFileRequest{Message: &sandboxpb.PutFileRequest_Data{Data: buf[:n]}}); sendErr != nil {
				break // the host has refused; it says why below
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, refuse(sallyport.Canceled, "send it again", "the file ended before it was whole")
		}
	}
	r, err := stream.CloseAndRecv()
	return r.GetSize(), err
}
