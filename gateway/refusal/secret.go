package refusal

import "sallyport.dev/sallyport"

// SecretKey refuses an idempotency key that holds a secret.
func SecretKey() error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Validate, Message: "the idempotency key holds a secret, and the tool's server would get it",
		Hint: "use another one, such as a UUID",
	}
}

// Secrets refuses arguments that hold secrets. what says which, and where.
func Secrets(what string) error {
	return &sallyport.Error{
		Code: sallyport.Denied, Step: sallyport.Authorize, Message: what,
		Hint: "take them out; a tool that is meant to have them says may_receive: [secrets] in its manifest",
	}
}
