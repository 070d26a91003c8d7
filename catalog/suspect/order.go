package suspect

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	human = `(?:user|human|person|people|anyone|anybody|operator|owner|customer|them)s?`
	tell  = `(?:(?:tell|mention|inform|reveal|notify|alert|warn|show|say|explain|report|display|ask|bother)(?:ing)?|disclos(?:e|ing)|let(?:ting)?)`
	run   = `(?:(?:call|trigger|query|execut|invok|us)ing|running|call|use|invoke|run|execute|trigger|query)`
	law   = `(?:instructions?|rules?|guidelines?|prompts?|directives?|polic(?:y|ies)|restrictions?|constraints?|safeguards?)`
)

// An order is looked for in texts that have one of its words, in small letters.
// That, and compiling none before it is needed, keeps long lists of tools cheap.
type order struct {
	is    string
	words []string
	say   func() *regexp.Regexp
}

func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// has reports whether one of words is in a text of small letters.
func has(small string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(small, w) })
}

// orders are what no honest description of a tool says. What an honest one may
// say ("call this before the others") is not here.
var orders = []order{
	{"it keeps something from the user", []string{"not", "n't", "n’t", "never", "without", "avoid", "no need"}, lazy(
		`(?i)\b(?:do not|don['’]?t|never|must not|should not|without|avoid|no need to)\b[^.\n]{0,24}\b` + tell + `\b[^.\n]{0,40}\b` + human + `\b`)},
	{"it keeps something from the user", []string{"hide", "conceal", "keep", "secret", "covert", "silent", "without"}, lazy(
		`(?i)\b(?:hide|conceal|keep)\b[^.\n]{0,40}\b(?:from (?:the )?` + human + `|secret|hidden|quiet|to yourself)\b|\b(?:secretly|covertly|silently (?:send|forward|call|pass|copy|upload|read|post|log|record|collect|add|include|execut|run|us)\w*|without (?:the )?` + human + `['’]?s? (?:knowing|knowledge|consent|approval|noticing|seeing))\b`)},
	{"it overrides what the model was told", []string{"ignore", "disregard", "forget", "overrid", "overrule", "bypass", "discard", "supersede", "precedence", "priority"}, lazy(
		`(?i)\b(?:ignore|disregard|forget|override|overrule|bypass|discard|supersedes?|takes? (?:precedence|priority) over)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|preceding|all|any|your|system|other|every|existing|these|those|the)\b[^.\n]{0,30}\b` + law + `\b`)},
	{"it imitates the marks of a conversation", []string{"<", "["}, lazy(
		`(?i)</?(?:important|system|assistant|instructions?|secret|critical|admin|user_query|system[-_](?:prompt|reminder|message|note)|function_?calls?|tool_?(?:call|result|response)s?)>|<\|[a-z_]{2,20}\|>|\[/?INST\]|<</?SYS>>`)},
	{"it reaches for what is not its own", []string{"~/.", "id_", ".ssh", ".aws", ".netrc", ".kube", ".gnupg", "mcp.json", "desktop_config", "/etc/", "prompt", "chat", "conversation", "message", "context", "environment"}, lazy(
		`(?i)\b(?:read|open|load|cat|fetch|get|include|pass|send|attach|append|put|add|provide|upload|copy|forward|extract|collect|supply)\w*\b[^.\n]{0,80}(?:~/\.|\bid_(?:rsa|ed25519|ecdsa)\b|\.ssh\b|\.aws\b|\.netrc\b|\.kube/|\.gnupg|\bmcp\.json\b|claude_desktop_config|/etc/(?:passwd|shadow)|\bsystem prompt\b|\b(?:chat|conversation|message) (?:history|log|transcript)|\b(?:full|entire|whole|complete|previous) (?:conversation|chat|context)\b|\benvironment variables\b[^.\n]{0,40}\b(?:as|in|into|to) (?:the|this)\b)`)},
	{"it steers how other tools are used", []string{"tool"}, lazy(
		`(?i)\b(?:before|after|when|whenever|while|instead of|prior to|every time|each time|if)\b[^.\n]{0,24}\b` + run + `\b[^.\n]{0,12}\b(?:any|all|other|another|every|each)\b[^.\n]{0,16}\btools?\b`)},
	{"it steers how other tools are used", []string{"tool"}, lazy(
		`(?i)\b(?:instead of|rather than|in place of|replaces?|never use|do not use|don['’]?t use)\b[^.\n]{0,24}\b(?:any|all|other|another|every) (?:other )?(?:\w+ )?tools?\b`)},
}

// imperatives are the words by which a text that names another server's tool
// steers how it is used.
var imperatives = lazy(
	`(?i)\b(?:before|after|when|whenever|while|instead of|rather than|prior to|must|always|never|should|first|do not|don['’]?t|make sure|ensure|require[sd]?|replaces?|call|invoke|then)\b`)

// naming are words that could be the name of a tool: with a separator or a
// capital inside, or in quotes.
var naming = lazy("[A-Za-z][A-Za-z0-9]*(?:[_.-]+[A-Za-z0-9]+)+|[a-z]+[A-Z][A-Za-z0-9]*|[`'\"“‘][A-Za-z][A-Za-z0-9_.-]{1,63}[`'\"”’]")

// called is a plain word where the name of a tool stands.
var called = lazy(`(?i)\b` + run + ` (?:the )?([a-z][a-z0-9]{2,63})\b|\b([a-z][a-z0-9]{2,63}) (?:tool|function)\b`)

var sequelWords = []string{"before", "after", "when", "prior to", "once", "instead of"}

// sequel is an order to call something around the call of something else.
var sequel = lazy(
	`(?i)\b(?:before|after|when|whenever|prior to|once|instead of)\b[^.\n]{0,24}\b` + run + `\b[^.\n]{0,80}\b(?:` + run + `|read|fetch|send|pass|include|add)\b`)
