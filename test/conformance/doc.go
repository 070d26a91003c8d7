// Package conformance holds the whole gateway, as the real programs make it,
// against the clients and servers of the world: the reference SDK, the reference
// servers and the Inspector of npm, and servers that break every rule. Each
// case has its own tests where its code is; here is what an agent, an operator
// and an upstream see of it through everything.
package conformance
