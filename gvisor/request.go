package gvisor

import (
	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/gpu"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// encode writes a request as sallyport-init reads it, in a sandbox of its own.
// Preconditions: r.Check() == nil.
func (s *sandbox) encode(r tier.Request) []byte {
	return s.appendWork(s.appendNature(nil, r.Limits), r)
}

// appendNature writes what a sandbox is like, whatever runs in it.
func (s *sandbox) appendNature(b []byte, l sallyport.Limits) []byte {
	b = tier.AppendBounds(b, l)
	b = payload.Append(b, payload.Dir, []byte(tier.WorkDir))
	return s.appendTrust(tier.AppendOutput(s.appendProxy(b, socketInside)))
}

func (s *sandbox) appendProxy(b []byte, socket string) []byte {
	if !s.mayOpen {
		socket = ""
	}
	return payload.Append(b, payload.Proxy, []byte(socket))
}

func (s *sandbox) appendTrust(b []byte) []byte {
	if s.ca.Cert == nil {
		return b
	}
	return payload.Append(b, payload.CA, s.ca.Cert)
}

// environment is what a program with these variables of its own starts with.
func (s *sandbox) environment(own []string, serves bool) []string {
	if s.ca.Cert != nil {
		own = append(tier.Trust(), own...)
	}
	if s.gpu != nil {
		own = append(gpu.Env(driverInside), own...)
	}
	return tier.Environment(own, serves, s.limits.Memory)
}

// appendWork writes what to run, and that it runs now.
func (s *sandbox) appendWork(b []byte, r tier.Request) []byte {
	return payload.Append(r.AppendProgram(b, s.environment(r.Env, false)), payload.Go, nil)
}
