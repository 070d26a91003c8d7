// Package request writes what a job is as a request to its server, in both eras.
package request

import (
	"encoding/json"
	"fmt"
	"strconv"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/param"
	"sallyport.dev/sallyport/backend/upstream/task"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// Of is a job's method, the name that stands in headers, and its parameters without
// _meta and the closing brace.
func Of(job sallyport.Job) (method, name string, params []byte, err error) {
	name = job.Tool.Origin.Name
	switch {
	case job.Tool.Shelf == "":
		return "tools/call", name, call(job), nil
	case job.Kind == sallyport.ReadResource:
		return "resources/read", name, wire.AppendString([]byte(`{"uri":`), name), nil
	case job.Kind == sallyport.GetPrompt:
		b := wire.AppendString([]byte(`{"name":`), name)
		if len(job.Args) > len(`{}`) {
			b = append(append(b, `,"arguments":`...), job.Args...)
		}
		return "prompts/get", name, b, nil
	case job.Kind == sallyport.Complete:
		return "completion/complete", "", complete(job), nil
	}
	return "", "", nil, fmt.Errorf("a server is not asked to %s", job.Kind)
}

func call(job sallyport.Job) []byte {
	b := make([]byte, 0, len(job.Args)+512)
	b = wire.AppendString(append(b, `{"name":`...), job.Tool.Origin.Name)
	b = append(b, `,"arguments":`...)
	if len(job.Args) == 0 {
		return append(b, `{}`...)
	}
	return append(b, job.Args...)
}

// complete is for completion/complete, in which the prompt or template has the name
// that its server knows.
func complete(job sallyport.Job) []byte {
	kind, by := "ref/resource", "uri"
	if job.Tool.Shelf == sallyport.Prompts {
		kind, by = "ref/prompt", "name"
	}
	b := wire.AppendString([]byte(`{"ref":{"type":"`+kind+`","`+by+`":`), job.Tool.Origin.Name)
	b = append(b, '}')
	for _, name := range []string{"argument", "context"} {
		if v := wire.Member(json.RawMessage(job.Args), name); v != nil {
			b = append(append(append(b, `,"`+name...), `":`...), v...)
		}
	}
	return b
}

// Header is what an HTTP request says in headers about a job. params are those of its
// tool that stand there too.
func Header(job sallyport.Job, params []param.Header) map[string]string {
	header := map[string]string{}
	for name, value := range map[string]string{"Traceparent": job.Trace, "Tracestate": job.TraceState, "Baggage": job.Baggage} {
		if value != "" {
			header[name] = value
		}
	}
	if job.Key != "" && wire.EncodeHeader(job.Key) == job.Key {
		header[wire.HeaderIdempotencyKey] = job.Key
	}
	for _, p := range params {
		if value, ok := p.Value(job.Args); ok {
			header[wire.HeaderParamPrefix+p.Name] = value
		}
	}
	return header
}

// A Meta is what each request of a session says about it.
type Meta struct {
	Modern  bool
	Version string          // of the protocol
	Client  json.RawMessage // who this gateway is
}

// Open appends the beginning of a _meta object, up to the closing brace.
func (m Meta) Open(dst []byte, capabilities json.RawMessage) []byte {
	if !m.Modern {
		return append(dst, '{')
	}
	dst = append(dst, `{"`+wire.MetaProtocolVersion+`":"`...)
	dst = append(append(dst, m.Version...), `","`+wire.MetaClientCapabilities+`":`...)
	dst = append(append(dst, capabilities...), `,"`+wire.MetaClientInfo+`":`...)
	return append(dst, m.Client...)
}

// Job appends the _meta of a request that a job makes.
func (m Meta) Job(b []byte, job sallyport.Job, id int64) []byte {
	b = m.Open(b, capabilities(job))
	member := func(name string) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":`...)
	}
	member(wire.MetaProgressToken)
	b = strconv.AppendInt(b, id, 10)
	for _, said := range [][2]string{
		{wire.MetaCallID, job.CallID}, {wire.MetaIdempotencyKey, job.Key}, {wire.MetaTraceparent, job.Trace},
		{wire.MetaTracestate, job.TraceState}, {wire.MetaBaggage, job.Baggage},
	} {
		if said[1] != "" {
			member(said[0])
			b = wire.AppendString(b, said[1])
		}
	}
	if job.Level != "" && m.Modern {
		member(wire.MetaLogLevel)
		b = wire.AppendString(b, job.Level)
	}
	return append(b, '}')
}

// capabilities are those that a job's request declares: what its client can be asked,
// and that a call may be answered with a task.
func capabilities(job sallyport.Job) json.RawMessage {
	c := ask.Capabilities(job.Can)
	if job.Tool.Shelf != "" {
		return c
	}
	b := append([]byte{'{'}, task.Declared...)
	if len(c) > len(`{}`) {
		return append(append(b, ','), c[1:]...)
	}
	return append(b, '}')
}
