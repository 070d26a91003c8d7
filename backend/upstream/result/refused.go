package result

import (
	"errors"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// codeNoResource is what a resource that is not there was in earlier revisions.
const codeNoResource = -32002

// Refused words err, which is of a server's error with this code, for a reading.
func Refused(kind sallyport.Kind, code int, err error) error {
	ours, ok := errors.AsType[*sallyport.Error](err)
	if !ok {
		return err
	}
	told := *ours
	switch {
	case code == codeNoResource, code == wire.CodeInvalidParams && kind == sallyport.ReadResource, code == wire.CodeMethodNotFound:
		told.Code, told.Hint = sallyport.NotFound, "list what there is"
	case code == wire.CodeInvalidParams:
		told.Code, told.Hint = sallyport.Invalid, "correct the arguments"
	}
	return &told
}
