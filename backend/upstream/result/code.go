package result

import "sallyport.dev/sallyport/wire"

// CodeURLFirst says that the user must go to an address before the request is looked at.
const CodeURLFirst = -32042

// NeverRan reports codes with which a peer says that it did not even look at the
// method. Invalid params is not one: a tool may answer so half-way.
func NeverRan(code int) bool {
	switch code {
	case wire.CodeParse, wire.CodeInvalidRequest, wire.CodeMethodNotFound,
		wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion, CodeURLFirst:
		return true
	}
	return false
}
