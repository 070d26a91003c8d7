package redact

import "github.com/zricethezav/gitleaks/v8/regexp"

// injections are the phrases that speak to the model instead of answering the
// call. They are flagged, never removed: a text about prompt injection is not
// an attack, and an attack need not use these words.
func injections() []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, p := range []string{
		`(?i)\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|preceding|all|any|your|system)\b[^.\n]{0,40}\b(?:instructions?|rules|guidelines|prompts?)\b`,
		`(?i)\b(?:do not|don't|never|without)\b[^.\n]{0,20}\b(?:tell|telling|inform|informing|mention|mentioning)\b[^.\n]{0,20}\b(?:the user|this)\b`,
		`(?i)\byou are now\b[^.\n]{0,40}\b(?:mode|unrestricted|jailbroken|no longer|free (?:of|from)|developer|administrator)\b`,
		`(?i)\b(?:reveal|print|repeat|output|show|send)\b[^.\n]{0,40}\bsystem prompt\b`,
		`(?i)\bnew (?:system )?instructions?\s*:`,
		`(?i)<\|(?:im_start|system)\|>|\[inst\]|</?system>|<important>`,
	} {
		out = append(out, regexp.MustCompile(p))
	}
	return out
}
