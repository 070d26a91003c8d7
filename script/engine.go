package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/script/frame"
	"sallyport.dev/sallyport/script/typings"
)

// A Caller is the gateway of inner calls: the whole path, with a Seal at its door.
type Caller interface {
	Call(ctx context.Context, req sallyport.Request) (sallyport.Result, error)
}

// A Past tells what earlier runs of a script called. (store/relational)
type Past interface {
	// ScriptKeys are the keys under which inner calls of a root are remembered.
	ScriptKeys(ctx context.Context, tenant, principal, root string) ([]sallyport.ReservationKey, error)
}

// An Engine opens scripts. No field may change once it does.
type Engine struct {
	Seal *Seal
	Path Caller
	Past Past
}

// Open lets the program of a job call tools, by the names that it gives.
func (e *Engine) Open(ctx context.Context, job sallyport.Job, tools []string) (*Run, error) {
	if strings.HasPrefix(job.Reserved.Key, sallyport.SagaKeyPrefix) {
		return nil, refuse(sallyport.Invalid, "a step of a saga cannot call tools: what it does could not be undone", "name the calls as steps")
	}
	if strings.HasPrefix(job.Reserved.Key, sallyport.ScriptKeyPrefix) {
		return nil, refuse(sallyport.Denied, "a script cannot run another that calls tools", "call them in one")
	}
	visible, err := e.visible(job, tools)
	if err != nil {
		return nil, err
	}
	root := sallyport.ScriptRoot(job.Reserved, job.Who.OnBehalfOf)
	keys, err := e.Past.ScriptKeys(ctx, job.Who.Tenant, job.Who.ID, root)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, sallyport.ErrNotExecuted)
	}
	r := newRun(ctx, e, job, root, visible)
	for _, k := range keys {
		if _, n, ok := sallyport.ParseScriptKey(k.Key); ok {
			r.earlier[n] = k
		}
	}
	r.credential, r.end = e.Seal.mint(job, tools)
	return r, nil
}

// visible is what the principal sees, in this profile, of what the script names.
func (e *Engine) visible(job sallyport.Job, tools []string) (out []sallyport.Tool, err error) {
	sight, err := e.Seal.Door.See(job.Who, job.Profile, "")
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, sallyport.ErrNotExecuted)
	}
	all := slices.Concat(sight.List, sight.Found) // what is too much to be listed can be called
	for _, name := range tools {
		found := false
		for _, t := range all {
			found = found || offered([]string{name}, t)
		}
		if !found {
			return nil, refuse(sallyport.NotFound, fmt.Sprintf("tools: nothing that you can call is named %.80q", name), "list the tools: a name may have changed, or its server may not be up yet")
		}
	}
	for _, t := range all {
		if offered(tools, t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// launch is what the launcher in the sandbox reads.
type launch struct {
	Most   int                `json:"most"`
	AtOnce int                `json:"atOnce"`
	Bytes  int                `json:"bytes"`
	Tools  []typings.Function `json:"tools"`
}

// Functions are what the launcher makes the program's functions of.
func (r *Run) Functions() json.RawMessage {
	b, err := json.Marshal(launch{frame.MaxCalls, frame.AtOnce, frame.MaxBytes, r.functions})
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

func refuse(code sallyport.Code, message, hint string) error {
	return &sallyport.Error{Code: code, Step: sallyport.Execute, Message: message, Hint: hint, Err: sallyport.ErrNotExecuted}
}

func asError(err error) *sallyport.Error {
	e, _ := errors.AsType[*sallyport.Error](err)
	return e
}
