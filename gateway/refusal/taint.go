package refusal

import "sallyport.dev/sallyport"

// Withheld says that a result is not shown, since it could not be noted that its reader is tainted.
func Withheld(err error) error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Sanitise, Err: err,
		Message: "it could not be noted that the result is not to be trusted, so it is withheld",
		Hint:    "what the call did is done; call again for the result, with the same key if it had one",
	}
}

// Suspect says that nobody knows whether the caller is tainted.
func Suspect(err error) error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Authorize, Err: err,
		Message: "it is not known whether the caller has read what strangers wrote, so the call is refused",
		Hint:    "call again; the operator finds the cause in the log",
	}
}
