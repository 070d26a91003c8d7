package code

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

var (
	perlBundle  = regexp.MustCompile(`^-((?:l[0-7]{0,3}|0(?:x[0-9a-fA-F]+|[0-7]{0,3})|[npawW]|C[A-Z0-9]*)*)([eE]?)$`)
	perlModule  = regexp.MustCompile(`^-M(List::Util|Scalar::Util|POSIX|JSON::PP|Data::Dumper|Time::Piece|Time::Local|Time::HiRes|MIME::Base64|Digest::SHA|Digest::MD5|Text::Wrap|Encode|strict|warnings|utf8|feature|integer|bigint|bignum)(=[\w,:]+)?$`)
	perlCut     = regexp.MustCompile(`^-F/?(?:[\w\s.,:;=+*-]|\\[\w.|\\]|\[[\w\s.,:;=|-]+\]|\|)+/?$`)
	filterFile  = regexp.MustCompile(`^[\w./](?:[\w./*?+=,@%-]*\w)?$`) // Perl runs names that end in a pipe
	rubyBundle  = regexp.MustCompile(`^-([nplaw]*)(e?)$`)
	rubyLibrary = regexp.MustCompile(`^-r(json|csv|yaml|set|date|time|digest|base64|securerandom|erb|uri|bigdecimal|pp|English|prime|matrix|openssl|zlib|ipaddr|tsort|ostruct)$`)
)

// filter reads the words of perl and ruby: code by -e, perhaps run for each line
// of the files that follow.
func (c Call) filter(args []word.Word) (Call, bool) {
	bundle := perlBundle
	if c.Language == "ruby" {
		bundle = rubyBundle
	}
	var programs []string
	for len(args) > 0 && args[0].Option() && args[0].Text != "-" {
		a := args[0]
		args = args[1:]
		switch m := bundle.FindStringSubmatch(a.Text); {
		case !a.Literal():
			return c, false
		case m != nil && a.Text != "-":
			c.Loops = c.Loops || strings.ContainsAny(m[1], "np")
			if m[2] == "" {
				continue
			}
			if len(args) == 0 || !args[0].Known {
				return c, false
			}
			programs, args = append(programs, args[0].Text), args[1:]
		case c.Language == "perl" && (perlCut.MatchString(a.Text) || perlModule.MatchString(a.Text)):
			c.Modules += a.Text + " "
		case c.Language == "ruby" && rubyLibrary.MatchString(a.Text):
		default:
			return c, false
		}
	}
	for _, a := range args {
		if !a.Known || !filterFile.MatchString(a.Text) && a.Text != "-" {
			return c, false
		}
	}
	c.Program, c.Rest = strings.Join(programs, "\n"), args
	return c, len(programs) > 0
}

// perlCalls are the words of Perl, and of the modules that may be taken, that only
// calculate, read and print.
var perlCalls = word.Set(`print printf say if elsif else unless for foreach while until next last redo my our local split join map grep sort keys values each exists defined delete scalar reverse
	push pop shift unshift splice length substr index rindex lc uc lcfirst ucfirst sprintf chomp chop int abs sqrt log exp sin cos atan2 hex oct ord chr localtime gmtime time sleep pack unpack
	return BEGIN END eq ne lt gt le ge cmp and or not xor x undef ref eof die warn exit STDIN STDOUT STDERR rand srand quotemeta wantarray do lstat stat pos vec binmode
	sum sum0 max min first any all none uniq uniqnum shuffle maxstr minstr product reduce pairs blessed looks_like_number strftime floor ceil fmod mktime
	decode_json encode_json Dumper encode_base64 decode_base64 md5_hex sha1_hex sha256_hex sha512_hex sha1 sha256 md5 timelocal timegm wrap encode decode e d f z r w l`)

// perlClasses have methods that are called by name; perlMethods may be called on
// anything.
var (
	perlClasses = word.Set(`Time::Piece JSON::PP`)
	perlMethods = word.Set(`strptime epoch strftime ymd mdy dmy hms datetime pretty canonical utf8 encode decode mon year mday hour min minute sec second day month yday week allow_nonref indent
		localtime gmtime julian_day day_of_week monname fullmonth new`)
	perlSpecials = `_.,/\;!&"0@|`
)

// perlOperators may stand before a regular expression.
var perlOperators = word.Set(`if unless and or not split grep map while until return x eq ne lt gt le ge cmp push unshift print xor elsif`)

var perlDelimiters = map[byte]byte{'{': '}', '(': ')', '[': ']', '<': '>'}

// reaches are ways by which a text or a regular expression of Perl holds code.
var reaches = regexp.MustCompile(`[$@]\{|@\$|\$\$|\$#|\$\^|\(\?\??\{|\(\*\{|->[@$%&(]`)

// members are the elements of lists and tables within a text, whose names are code.
var (
	members     = regexp.MustCompile(`[$@][\w:'+!&,./;-]+?(?:->)?(\[[^\]]*\]?|\{[^}]*\}?)`)
	plainMember = regexp.MustCompile(`^(?:\[(?:-?\d+|\$\w+)\]|\{\s*(?:[\w.-]+|\$\w+|'[^']*'|\d+,\d*)\s*\})$`)
)

var escapedPair = regexp.MustCompile(`(?s)\\.`)

// perlFlat tells a text in which only plain variables are replaced.
func perlFlat(text string) bool {
	bare := escapedPair.ReplaceAllString(text, "")
	for _, m := range members.FindAllStringSubmatchIndex(bare, -1) {
		if behind := bare[m[1]:]; !plainMember.MatchString(bare[m[2]:m[3]]) || strings.HasPrefix(behind, "[") || strings.HasPrefix(behind, "{") || strings.HasPrefix(behind, "->") {
			return false
		}
	}
	return !reaches.MatchString(bare) && !strings.Contains(text, "(?{") && !strings.Contains(text, "(??{") && !strings.Contains(text, "(*{")
}

// A perlScan goes through one program of Perl.
type perlScan struct {
	text   string
	tokens []lookToken // v a variable, d something that is got at by a reference
	deref  bool        // by a reference
	lists  bool        // to a list or a single value
	argv   bool        // reads the files that are named behind it
	depth  int
	look   Look
}

func perlLooks(c Call) (Look, bool) {
	if len(c.Program) > 1<<12 || strings.ContainsAny(c.Program, "\r\f\v\x00") || strings.Contains(c.Program, "\n=") || strings.HasPrefix(c.Program, "=") {
		return Look{}, false
	}
	s := perlScan{text: c.Program}
	if !s.cut() {
		return Look{}, false
	}
	for i := range s.tokens {
		s.references(i)
	}
	if s.lists && (c.Loops || s.argv) || s.deref && (strings.Contains(c.Modules, "POSIX") || strings.Contains(c.Modules, "Encode")) {
		return Look{}, false // a reference may be the name of anything, such as of the files to open
	}
	for i := range s.tokens {
		if !s.allowed(i) {
			return Look{}, false
		}
	}
	return s.look, true
}

func (s *perlScan) at(i int) string {
	if i < 0 || i >= len(s.tokens) || s.tokens[i].kind == 's' || s.tokens[i].kind == 'r' {
		return ""
	}
	return s.tokens[i].text
}

func (s *perlScan) is(i int, kind byte) bool {
	return i >= 0 && i < len(s.tokens) && s.tokens[i].kind == kind
}

// references notes what is got at by references: $x->[0], $x[0][1], @$x, $$x.
func (s *perlScan) references(i int) {
	t, after := s.at(i), s.at(i+1)
	switch {
	case s.is(i, 'd'):
		s.deref, s.lists = true, s.lists || t != "%"
	case t == ">" && s.at(i-1) == "-" && (after == "[" || after == "{"), t == "]" && (after == "[" || after == "{"), t == "}" && after == "[":
		s.deref, s.lists = true, s.lists || after == "["
	case t == "}" && after == "{":
		s.deref = true
	}
}

// subscript tells that the { at token i opens a key, and no block, in which a word is
// called.
func (s *perlScan) subscript(i int) bool {
	before := s.at(i - 1)
	return s.is(i-1, 'v') || s.is(i-1, 'd') || before == ">" && s.at(i-2) == "-" || before == "]" || before == "}" && s.element(i-1)
}

// substitutes judges what stands between the marks.
func (s *perlScan) substitutes(name, first, second, flags string) bool {
	switch {
	case name == "q", name == "qw", name == "tr", name == "y":
		return true
	case !perlFlat(first), strings.Count(flags, "e") > 1:
		return false
	case name != "s" || !strings.Contains(flags, "e"):
		return perlFlat(second)
	case s.depth > 0:
		return false
	}
	inner := perlScan{text: second, depth: s.depth + 1}
	if !inner.cut() {
		return false
	}
	s.argv = s.argv || inner.argv
	for i := range inner.tokens {
		inner.references(i)
		s.deref, s.lists = s.deref || inner.deref, s.lists || inner.lists
		if !inner.allowed(i) {
			return false
		}
	}
	s.look.Environment = s.look.Environment || inner.look.Environment
	return true
}

func (s *perlScan) allowed(i int) bool {
	t := s.tokens[i]
	after, before := s.at(i+1), s.at(i-1)
	arrow := before == ">" && s.at(i-2) == "-"
	switch t.kind {
	case 'v':
		switch strings.TrimLeft(t.text, "$@%#") {
		case "ENV":
			s.look.Environment = true
		case "ARGV":
			return t.text == "$ARGV" && after != "["
		case "INC", "SIG", "main", "ISA", "EXPORT", "AUTOLOAD":
			return false
		}
		return !arrow
	case 'd':
		return !arrow
	case 'n':
		switch {
		case strings.HasPrefix(t.text, "__"):
			return false
		case arrow && t.text == "new":
			return perlClasses[s.at(i-3)]
		case arrow:
			return perlMethods[t.text]
		case before == "{" && after == "}" && s.subscript(i-1), after == "=" && s.at(i+2) == ">":
			return true // a key
		case perlClasses[t.text]:
			return after == "-" && s.at(i+2) == ">"
		case t.text == "sort": // by a function that a variable names
			return !strings.HasPrefix(after, "$") && !(after == "(" && strings.HasPrefix(s.at(i+2), "$") && s.at(i+3) != ",")
		case t.text == "do":
			return after == "{"
		case t.text == "print" || t.text == "printf" || t.text == "say":
			return after != "{"
		}
		return perlCalls[t.text]
	}
	if t.text == "(" && (before == "]" || before == "}" && s.element(i-1)) {
		return false // $x[0](…) calls what is there
	}
	if t.text == ">" && before == "-" { // ->
		return after == "[" || after == "{" || s.is(i+1, 'n')
	}
	return true
}
