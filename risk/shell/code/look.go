package code

import (
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// A Look is what a program in a language does that only calculates, reads and
// prints.
type Look struct {
	Reads   []string // files
	Imports bool     // modules that a file of the same name in the folder would replace
}

// A language is what of it is known to do nothing but calculate, read and print.
// Whatever these words are combined to, they can do no more.
type language struct {
	comment  string
	keywords map[string]bool
	calls    map[string]bool // functions, and modules that need no import
	modules  map[string]bool // that may be imported
	inner    map[string]bool // modules that no file can replace
	members  map[string]bool // what may stand behind a point
	forbids  map[string]bool // names that the language itself gives, and that are not calls
	quotes   string
}

var languages = map[string]language{
	"python": {
		comment:  "#",
		keywords: word.Set(`for in if else elif and or not is with as True False None pass import from`),
		calls: word.Set(`print sum range len min max abs round sorted int float str bool list tuple set frozenset dict reversed enumerate zip any all ord chr
			hex bin oct divmod pow repr isinstance`),
		modules: word.Set(`json csv sys math re datetime time statistics collections itertools base64 hashlib textwrap string`),
		inner:   word.Set(`sys time itertools`),
		members: word.Set(`load loads dumps reader DictReader path executable prefix argv stdin version version_info platform maxsize byteorder
			sqrt pi e floor ceil log log2 log10 exp factorial gcd comb hypot sin cos tan inf
			findall search match fullmatch sub split group groups compile finditer IGNORECASE
			datetime date timedelta now today strftime isoformat fromtimestamp utcnow timestamp year month day total_seconds days strptime fromisoformat
			mean median stdev Counter defaultdict OrderedDict most_common count product combinations permutations islice groupby chain
			b64encode b64decode sha256 sha1 md5 sha512 hexdigest encode decode dedent wrap fill
			read readline readlines splitlines strip lstrip rstrip lower upper title startswith endswith replace join find index
			get items keys values append extend isdigit isalpha zfill ljust rjust center partition rpartition fieldnames ascii_letters digits`),
		forbids: word.Set(`open eval exec compile globals locals vars getattr setattr delattr hasattr input breakpoint help exit quit memoryview callable type
			object super classmethod staticmethod property dir id hash iter next map filter slice format copyright credits license execfile file reload
			raw_input apply unicode xrange cmp intern coerce buffer long basestring unichr reduce complex bytearray aiter anext ascii
			def class lambda del global nonlocal while try except finally raise return yield async await assert exec import_module NotImplemented Ellipsis`),
		quotes: `'"`,
	},
	"node": {
		keywords: word.Set(`const let var true false null undefined NaN Infinity of in if else`),
		calls:    word.Set(`console JSON Math Number String Boolean Array Object Date parseInt parseFloat process`),
		members: word.Set(`log parse stringify version versions platform arch v8 uv node openssl memoryUsage uptime hrtime cwd
			abs ceil floor round max min sqrt pow PI trunc sign hypot random
			map filter reduce slice concat includes indexOf join reverse sort flat find some every length keys values entries fromEntries from
			split trim toUpperCase toLowerCase toFixed toString padStart padEnd repeat startsWith endsWith
			now toISOString getTime getFullYear isInteger isArray`),
		forbids: word.Set(`require import export eval Function globalThis global this module exports function class new delete while do for switch try catch throw
			return yield async await with void typeof instanceof Reflect Proxy WebAssembly fetch setTimeout setInterval setImmediate queueMicrotask Buffer
			document window self structuredClone Symbol Promise Error arguments super constructor prototype __proto__ debugger`),
		quotes: `'"`,
	},
}

// Looks tells whether a program in a language only calculates, reads files that
// it names, and prints. It knows the plain words of few languages, and doubts.
func Looks(name, program string) (Look, bool) {
	l, ok := languages[name]
	if !ok || len(program) > 1<<12 || strings.ContainsAny(program, "\r\f\v\x00") || strings.Contains(program, `"""`) || strings.Contains(program, "'''") {
		return Look{}, false // where lines and texts end may differ
	}
	s := lookScan{language: l, text: program, bound: map[string]bool{}}
	if !s.cut() {
		return Look{}, false
	}
	s.binds()
	for i := range s.tokens {
		if !s.allowed(i) {
			return Look{}, false
		}
	}
	return s.look, true
}

type lookToken struct {
	kind byte // n a name, s a string, 0 anything else
	text string
}

type lookScan struct {
	language
	text   string
	tokens []lookToken
	bound  map[string]bool // names that the program gives itself
	look   Look
}

// cut makes tokens. It reports false for what it cannot read: strings that are
// code in part, escapes of names, letters that are not ASCII.
func (s *lookScan) cut() bool {
	for i := 0; i < len(s.text); {
		c := s.text[i]
		switch {
		case s.comment != "" && strings.HasPrefix(s.text[i:], s.comment):
			comment, _, more := strings.Cut(s.text[i:], "\n")
			if strings.Contains(comment, "coding") { // in other letters the text is another
				return false
			}
			if !more {
				return true
			}
			i += len(comment)
		case strings.IndexByte(s.quotes, c) >= 0:
			if n := len(s.tokens); n > 0 && s.modules != nil && s.tokens[n-1].kind == 'n' && (s.tokens[n-1].text == "b" || s.tokens[n-1].text == "r") {
				s.tokens = s.tokens[:n-1] // b"…" and r"…" are texts
			}
			end := s.closing(i)
			if end < 0 || len(s.tokens) > 0 && s.tokens[len(s.tokens)-1].kind == 'n' && !s.keywords[s.tokens[len(s.tokens)-1].text] {
				return false // f"{code}", or a name before a text
			}
			s.tokens = append(s.tokens, lookToken{'s', s.text[i+1 : end]})
			i = end + 1
		case isName(c) && (c < '0' || c > '9'):
			from := i
			for i < len(s.text) && isName(s.text[i]) {
				i++
			}
			s.tokens = append(s.tokens, lookToken{'n', s.text[from:i]})
		case c >= '0' && c <= '9':
			for i < len(s.text) && (isName(s.text[i]) || s.text[i] == '.' && i+1 < len(s.text) && s.text[i+1] >= '0' && s.text[i+1] <= '9') {
				i++ // a point before anything but a digit may begin a member: 1..x
			}
			s.tokens = append(s.tokens, lookToken{0, "0"})
		case strings.IndexByte(" \t\n", c) >= 0:
			i++
		case strings.IndexByte("()[]{}<>=!+-*%,.:;&|^~?", c) >= 0, c == '/' && s.modules != nil:
			s.tokens = append(s.tokens, lookToken{0, string(c)})
			i++
		default: // `, \, @, $, what is not ASCII, and where a regular expression may begin
			return false
		}
	}
	return true
}

func (s *lookScan) closing(i int) int {
	for j := i + 1; j < len(s.text); j++ {
		switch s.text[j] {
		case '\\':
			j++
		case '\n':
			return -1
		case s.text[i]:
			return j
		}
	}
	return -1
}

func isName(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func (s *lookScan) at(i int) string {
	if i < 0 || i >= len(s.tokens) || s.tokens[i].kind == 's' {
		return ""
	}
	return s.tokens[i].text
}

// binds finds the names that the program gives to values of its own: x = …,
// for x in …, … as x, const x = …, x => ….
func (s *lookScan) binds() {
	for i, t := range s.tokens {
		before, after := s.at(i-1), s.at(i+1)
		if t.kind == 'n' && !strings.HasPrefix(t.text, "__") && before != "." &&
			(after == "=" && s.at(i+2) != "=" || before == "for" || before == "as" || before == "const" || before == "let" || before == "var" || before == "," && after == "in" ||
				before == "import" && s.at(i-3) == "from") {
			s.bound[t.text] = true
		}
	}
}

func (s *lookScan) allowed(i int) bool {
	t := s.tokens[i]
	if t.kind != 'n' {
		// In JavaScript a["constructor"] is a member, and a list only where no value stands before.
		if t.text == "[" && s.at(i-1) == "." && s.at(i-2) == "." && s.at(i-3) == "." && (s.at(i-4) == "(" || s.at(i-4) == ",") {
			return true // f(...[1, 2])
		}
		return t.text != "[" || t.kind == 's' || s.modules != nil || i == 0 || s.tokens[i-1].kind == 0 && strings.Contains("=(,:?>[{;+&|", s.at(i-1))
	}
	switch {
	case s.at(i-1) == ".":
		return s.members[t.text]
	case s.modules == nil && s.at(i+1) == ":" && (s.at(i-1) == "{" || s.at(i-1) == ",") && !s.forbids[t.text] && !strings.HasPrefix(t.text, "__"):
		return true // a key
	case t.text == "new" && s.modules == nil && s.at(i+1) == "Date" && s.at(i+2) == "(":
		return true
	case t.text == "import" || t.text == "from":
		return s.modules != nil && s.imports(i)
	case t.text == "open" && s.modules != nil:
		return s.opens(i)
	case s.modules[t.text]:
		return true
	case s.forbids[t.text]:
		return false
	}
	return s.keywords[t.text] || s.calls[t.text] || s.bound[t.text]
}

// imports reads: import a, b
func (s *lookScan) imports(i int) bool {
	if s.at(i) == "from" {
		return s.modules[s.at(i+1)] && s.at(i+2) == "import"
	}
	if s.at(i-2) == "from" {
		s.look.Imports = s.look.Imports || !s.inner[s.at(i-1)]
		return s.members[s.at(i+1)] && s.at(i+2) != "," && s.at(i+2) != "as"
	}
	for i++; ; i += 2 {
		if !s.modules[s.at(i)] || s.at(i+1) == "." || s.at(i+1) == "as" {
			return false
		}
		s.look.Imports = s.look.Imports || !s.inner[s.at(i)]
		if s.at(i+1) != "," {
			return true
		}
	}
}

// opens reads: open("NAME"), open("NAME", "r"), with encoding="…" or newline="…"
func (s *lookScan) opens(i int) bool {
	if s.at(i+1) != "(" || i+3 >= len(s.tokens) || s.tokens[i+2].kind != 's' || strings.Contains(s.tokens[i+2].text, `\`) {
		return false
	}
	s.look.Reads = append(s.look.Reads, s.tokens[i+2].text)
	for i += 3; i < len(s.tokens); {
		switch {
		case s.at(i) == ")":
			return true
		case s.at(i) != ",":
			return false
		case i+1 < len(s.tokens) && s.tokens[i+1].kind == 's':
			if m := s.tokens[i+1].text; m != "r" && m != "rb" && m != "rt" {
				return false
			}
			i += 2
		case (s.at(i+1) == "encoding" || s.at(i+1) == "newline") && s.at(i+2) == "=" && i+3 < len(s.tokens) && s.tokens[i+3].kind == 's':
			i += 4
		default:
			return false
		}
	}
	return false
}
