package code

import (
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// rubyConstants are what Ruby's classes are known to do nothing with but calculate,
// read and print. Those without a list may be named, and no more is special in them.
var rubyConstants = map[string]map[string]bool{
	"File": word.Set(`read readlines foreach exist? file? directory? size basename dirname extname join expand_path mtime ctime stat zero? symlink? readable? executable? realpath split`),
	"Dir":  word.Set(`glob children entries exist? each_child pwd home empty?`),
	"JSON": word.Set(`parse generate pretty_generate ParserError`), "CSV": word.Set(`read foreach parse parse_line generate_line table`),
	"YAML": word.Set(`safe_load safe_load_file dump`), "Time": word.Set(`now at parse iso8601 strptime mktime utc gm local new`),
	"Date": word.Set(`new today parse strptime valid_date? iso8601 leap?`), "DateTime": word.Set(`now parse new strptime`),
	"Set": word.Set(`new`), "Struct": word.Set(`new`), "Hash": word.Set(`new`), "Array": word.Set(`new`), "Math": word.Set(`sqrt log log2 log10 sin cos tan atan atan2 hypot cbrt PI E exp`),
	"Digest": word.Set(`SHA256 SHA1 MD5 SHA512 SHA384`), "SHA256": word.Set(`hexdigest digest base64digest file`), "SHA1": word.Set(`hexdigest digest file`), "MD5": word.Set(`hexdigest digest file`), "SHA512": word.Set(`hexdigest digest file`),
	"Base64": word.Set(`encode64 decode64 strict_encode64 strict_decode64 urlsafe_encode64 urlsafe_decode64`), "SecureRandom": word.Set(`hex uuid random_number base64 alphanumeric urlsafe_base64`),
	"URI": word.Set(`parse encode_www_form encode_www_form_component decode_www_form decode_www_form_component join`), "ERB": word.Set(`Util`), "Util": word.Set(`url_encode html_escape`),
	"OpenSSL": word.Set(`X509`), "X509": word.Set(`Certificate`), "Certificate": word.Set(`new`), "IPAddr": word.Set(`new`), "Prime": word.Set(`first each prime? prime_division take`),
	"ENV": word.Set(`[] fetch key? keys`), "STDIN": word.Set(`read each_line gets readlines readline each`), "ARGF": word.Set(`read each_line gets readlines each readline filename lineno each_with_index`), "STDERR": word.Set(`puts print`), "STDOUT": word.Set(`puts print flush`),
	"ARGV": nil, "RUBY_VERSION": nil, "RUBY_PLATFORM": nil, "RUBY_ENGINE": nil, "Integer": nil, "Float": nil, "String": nil, "Symbol": nil, "Rational": nil, "Complex": nil, "NilClass": nil, "TrueClass": nil, "FalseClass": nil, "Numeric": nil, "Range": nil, "Regexp": word.Set(`escape union new last_match`),
	"StandardError": nil, "ArgumentError": nil, "KeyError": nil, "TypeError": nil, "ZeroDivisionError": nil, "RuntimeError": nil, "Errno": nil, "ENOENT": nil, "ParserError": nil, "PI": nil, "E": nil, "BigDecimal": nil, "BEGIN": nil, "END": nil, "INFINITY": nil, "NAN": nil, "MAX": nil,
}

// rubyAlone are constants that stand nowhere but before their methods: what they
// do otherwise is more.
var rubyAlone = word.Set(`File Dir CSV JSON YAML URI ERB OpenSSL`)

var rubyWords = word.Set(`if unless else elsif end while until for in do begin rescue ensure then case when and or not nil true false self next break redo return yield def defined?`)

// rubyValues are those words behind which a sign is an operator, or may be one.
var rubyValues = word.Set(`end self nil true false yield redo not defined?`)

// rubyCalls are methods that may be called of nothing.
var rubyCalls = word.Set(`puts print p pp printf sprintf format gets loop rand lambda proc raise warn exit sleep chomp chop gsub sub putc readlines readline block_given? catch throw Integer Float String Array Rational BigDecimal`)

// rubyMethods are methods that may be called of anything.
var rubyMethods = word.Set(`each grep grep_v each_with_index each_line each_char each_byte each_slice each_cons each_with_object each_key each_value each_pair each_entry each_index reverse_each map map! flat_map collect filter_map select filter reject
	select! reject! find detect find_index find_all partition group_by chunk_while slice_when sort sort! sort_by sort_by! min max min_by max_by minmax minmax_by sum reduce inject count tally size length first last take take_while
	drop drop_while uniq uniq! compact compact! flatten zip product combination permutation transpose rotate sample shuffle reverse join push pop shift unshift append prepend insert concat delete delete_at delete_if
	delete_prefix delete_suffix keep_if clear fill index rindex include? member? any? all? none? one? empty? nil? zero? positive? negative? even? odd? integer? finite? nan? infinite? between? clamp
	keys values key key? value? has_key? has_value? fetch dig store merge merge! update to_h to_a to_s to_str to_i to_f to_r to_c to_json to_set to_time to_date to_yaml inspect values_at fetch_values slice except transform_values
	transform_keys invert sort_by group_by default compare_by_identity sum lazy force with_index with_object each_entry cycle step upto downto times succ next pred
	split strip lstrip rstrip chomp chop chars bytes lines codepoints scan match match? gsub gsub! sub sub! tr tr_s squeeze upcase downcase capitalize swapcase start_with? end_with? center ljust rjust ord chr hex oct unpack unpack1 pack
	encode force_encoding valid_encoding? unicode_normalize encoding scrub b replace casecmp casecmp? eql? equal? hash freeze frozen? dup itself then tap is_a? kind_of? instance_of? respond_to?
	round floor ceil truncate abs divmod modulo fdiv pow gcd lcm digits bit_length rationalize numerator denominator real imaginary
	year month day hour min sec usec wday yday mon mday strftime iso8601 utc localtime getlocal zone utc_offset monday? tuesday? wednesday? thursday? friday? saturday? sunday? leap? cwday cweek jd ajd next_day prev_day next_month
	prev_month to_datetime beginning end begin cover? exclude_end? headers header fields row by_col field read gets readlines readline message backtrace full_message captures named_captures pre_match post_match names
	hexdigest digest base64digest subset? superset? disjoint? intersect? union intersection difference add add? call curry arity
	host scheme path port query fragment userinfo not_after not_before subject issuer serial extensions mtime size directory? file? new ipv4? ipv6? include? bsearch sum none? puts print flush exist?`)

// rubyKernel are methods of every object that do more than their program may: a
// name of the program's own that is one of them is not trusted.
var rubyKernel = word.Set(`abort at_exit autoload binding callcc caller eval exec exit! fail fork global_variables load local_variables open require require_relative set_trace_func spawn srand syscall system test trace_var
	trap untrace_var send public_send __send__ instance_eval instance_exec instance_variable_get instance_variable_set method methods define_singleton_method define_method extend include using class singleton_class
	singleton_method public_method display const_get const_set class_eval module_eval refine attr_accessor alias alias_method undef remove_method undef_method private public module_function prepend to_proc to_sym intern
	ObjectSpace Process Kernel IO Marshal Object Module Class rm_rf sh ruby object_class array_class create_additions mode flags perm external_encoding`)

// A rubyScan goes through one program of Ruby.
type rubyScan struct {
	tokens []lookToken
	bound  map[string]bool
	look   Look
}

func rubyLooks(c Call) (Look, bool) {
	p := c.Program
	if len(p) > 1<<12 || strings.ContainsAny(p, "\r\f\v\x00") || strings.Contains(p, "\n=") || strings.HasPrefix(p, "=") {
		return Look{}, false
	}
	s := rubyScan{bound: map[string]bool{}}
	if _, ok := s.cut(p, 0, false); !ok {
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

func (s *rubyScan) at(i int) string {
	if i < 0 || i >= len(s.tokens) || s.tokens[i].kind == 's' || s.tokens[i].kind == 'r' {
		return ""
	}
	return s.tokens[i].text
}

func (s *rubyScan) is(i int, kind byte) bool {
	return i >= 0 && i < len(s.tokens) && s.tokens[i].kind == kind
}

func (s *rubyScan) add(kind byte, text string) { s.tokens = append(s.tokens, lookToken{kind, text}) }

// value tells that a value ends before what follows; known is false after a name,
// which may be a call whose argument follows.
func (s *rubyScan) value() (value, known bool) {
	n := len(s.tokens) - 1
	switch {
	case n < 0:
		return false, true
	case s.is(n, 'v'), s.is(n, 's'), s.is(n, '0'), s.is(n, 'r'), s.at(n) == ")", s.at(n) == "]":
		return true, true
	case s.at(n) == "}":
		return true, false
	case s.is(n, 'n'):
		return true, rubyWords[s.at(n)] && !rubyValues[s.at(n)]
	}
	return false, true
}

// cut makes tokens, up to the bracket that closes the code within a text. It
// reports false for what it cannot read for sure.
func (s *rubyScan) cut(text string, i int, within bool) (end int, ok bool) {
	depth := 0
	for i < len(text) {
		c := text[i]
		switch {
		case strings.IndexByte(" \t\n", c) >= 0:
			i++
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '}' && within && depth == 0:
			return i, true
		case c == '\'' || c == '"':
			if i, ok = s.quoted(text, i); !ok {
				return 0, false
			}
		case c == '$':
			n := 1
			for i+n < len(text) && word.InName(text[i+n]) {
				n++
			}
			if n == 1 {
				n = 2
			}
			name := text[i:min(i+n, len(text))]
			if !rubyGlobals[name] && (len(name) != 2 || name[1] < '1' || name[1] > '9') {
				return 0, false
			}
			s.add('v', name)
			i += n
		case c == ':' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\'') && (i == 0 || strings.IndexByte(" \t\n(,&[{=|;!", text[i-1]) >= 0):
			return 0, false // the name of a method, as a text
		case c == '@':
			i++
		case c == '/' || c == '%' || c == '?' || c == '<' && strings.HasPrefix(text[i:], "<<"):
			if i, ok = s.ambiguous(text, i); !ok {
				return 0, false
			}
		case word.InName(c) && (c < '0' || c > '9'):
			from := i
			for i < len(text) && word.InName(text[i]) {
				i++
			}
			if i < len(text) && (text[i] == '?' || text[i] == '!') && (i+1 == len(text) || text[i+1] != '=') {
				i++
			}
			s.add('n', text[from:i])
		case c >= '0' && c <= '9':
			for i < len(text) && (word.InName(text[i]) || text[i] == '.' && i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9') {
				i++
			}
			s.add('0', "0")
		case strings.IndexByte("()[]{}>=!+-*,.:;&|^~<", c) >= 0:
			if c == '{' {
				depth++
			} else if c == '}' {
				depth--
			}
			s.add(0, string(c))
			i++
		default: // `, \, and what is not ASCII
			return 0, false
		}
	}
	return i, !within
}

var rubyGlobals = word.Set(`$_ $. $~ $& $, $/ $; $stdin $stdout $stderr $!`)

// quoted reads '…', or "…" with the code in it.
func (s *rubyScan) quoted(text string, i int) (end int, ok bool) {
	var b strings.Builder
	mark := text[i]
	s.add(0, "(")
	for i++; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			b.WriteByte(text[i])
			if i++; i < len(text) {
				b.WriteByte(text[i])
			}
		case text[i] == mark:
			s.add('s', b.String())
			s.add(0, ")")
			return i + 1, true
		case mark == '"' && strings.HasPrefix(text[i:], "#{"):
			s.add(0, "(")
			if i, ok = s.cut(text, i+2, true); !ok {
				return 0, false
			}
			s.add(0, ")")
			s.add(0, "+")
		case mark == '"' && text[i] == '#' && i+1 < len(text) && strings.IndexByte("$@", text[i+1]) >= 0:
			return 0, false
		default:
			b.WriteByte(text[i])
		}
	}
	return 0, false
}

// ambiguous reads a sign that is an operator behind a value, and begins a text
// elsewhere.
func (s *rubyScan) ambiguous(text string, i int) (end int, ok bool) {
	value, known := s.value()
	name := len(s.tokens) > 0 && s.is(len(s.tokens)-1, 'n')
	spaced := i+1 < len(text) && text[i+1] == ' '
	switch {
	case value && known && !name, value && !known && spaced && text[i] != '<':
		s.add(0, text[i:i+1])
		return i + 1, true
	case value && !known && strings.HasPrefix(text[i:], "<< "):
		s.add(0, "<")
		s.add(0, "<")
		return i + 2, true
	case value && !known && !(text[i] == '%' && (s.at(len(s.tokens)-1) == "puts" || s.at(len(s.tokens)-1) == "p")), text[i] == '?' || text[i] == '<':
		return 0, false
	case text[i] == '%':
		if i+2 >= len(text) || text[i+1] != 'w' && text[i+1] != 'i' || strings.IndexByte("[({", text[i+2]) < 0 {
			return 0, false
		}
		n := perlEnd(text, i+2)
		if n < 0 || text[i+1] == 'i' {
			return 0, false
		}
		s.add('s', text[i+3:n])
		return n + 1, true
	}
	n := perlEnd(text, i)
	if n < 0 || strings.Contains(text[i:n], "#{") || strings.Contains(text[i:n], "#$") || strings.Contains(text[i:n], "#@") {
		return 0, false
	}
	s.add('r', text[i+1:n])
	for n++; n < len(text) && text[n] >= 'a' && text[n] <= 'z'; n++ {
	}
	return n, true
}

// binds finds the names that the program gives to values of its own.
func (s *rubyScan) binds() {
	for i, t := range s.tokens {
		if t.kind != 'n' || s.at(i-1) == "." {
			continue
		}
		after, before := s.at(i+1), s.at(i-1)
		switch {
		case after == "=" && s.at(i+2) != "=" && s.at(i+2) != "~", before == "for", before == "def", before == ">" && s.at(i-2) == "=",
			(after == "+" || after == "-" || after == "*" || after == "|" || after == "<") && (s.at(i+2) == "=" || s.at(i+3) == "="):
			s.bound[t.text] = true
		case before == "|" || before == "," || before == "(" || before == "*":
			s.bound[t.text] = s.bound[t.text] || s.parameter(i)
		}
	}
}

// parameter tells a name between the bars or brackets of parameters, or one of
// several that are assigned at once.
func (s *rubyScan) parameter(i int) bool {
	for j := i + 1; j < len(s.tokens); j++ {
		switch t := s.at(j); {
		case t == "|":
			return true
		case t == "=" && s.at(j+1) != "=":
			return true
		case t == ")" && (s.at(j+1) == "{" || s.at(j+1) == "|" || s.at(j+1) == "," || s.at(j+1) == "="):
		case t != "," && t != "(" && t != "*" && !s.is(j, 'n'):
			return false
		}
	}
	return false
}

func (s *rubyScan) allowed(i int) bool {
	t := s.tokens[i]
	switch {
	case t.kind == 's':
		if strings.ContainsAny(t.text, "./") && len(t.text) < 256 {
			s.look.Reads = append(s.look.Reads, t.text)
		}
		return true
	case t.kind == 0 && t.text == "*" && s.at(i+1) == "*" && (s.at(i-1) == "(" || s.at(i-1) == ",") && !s.is(i-1, '0'):
		return false // options out of a value
	case t.kind == 0 && t.text == "&" && (s.at(i-1) == "(" || s.at(i-1) == ","):
		return s.at(i+1) == ":" // else it calls what a value names
	case t.kind != 'n':
		return true
	}
	before, after := s.at(i-1), s.at(i+1)
	owner := ""
	if before == "." && s.is(i-2, 'n') {
		owner = s.at(i - 2)
	}
	if before == ":" && s.at(i-2) == ":" && s.is(i-3, 'n') {
		owner, before = s.at(i-3), "."
	}
	switch {
	case strings.HasPrefix(t.text, "__"), rubyKernel[t.text]:
		return false
	case owner != "" && rubyConstants[owner] != nil && owner[0] <= 'Z':
		return rubyConstants[owner][t.text] && s.given(owner, i)
	case before == "." && (t.text == "inject" || t.text == "reduce"):
		return s.folds(i + 1)
	case before == ".":
		return rubyMethods[t.text] || rubyWords[t.text] && t.text == "then"
	case before == ":" && !s.is(i-2, 'n') && s.at(i-2) != "?": // :symbol
		return rubyMethods[t.text] && s.at(i-2) != "&" || s.at(i-2) == "[" && after == "]" || rubyMethods[t.text]
	case after == ":" && s.at(i+2) != ":":
		return true // a key
	case t.text[0] <= 'Z' && rubyCalls[t.text] && after == "(":
		return true
	case t.text[0] <= 'Z':
		_, ok := rubyConstants[t.text]
		if t.text == "ENV" {
			s.look.Environment = true
		}
		return ok && (!rubyAlone[t.text] || after == "." || after == ":" && s.at(i+2) == ":" || t.text == "Dir" && after == "[")
	}
	return rubyWords[t.text] || rubyCalls[t.text] || s.bound[t.text]
}

// folds tells that inject is given numbers, operators and methods that are seen: it
// calls what its last argument names, be that a text.
func (s *rubyScan) folds(i int) bool {
	if s.at(i) != "(" {
		return s.at(i) == "{" || s.at(i) == "do" || s.at(i) == ":" || s.at(i) == "." || s.at(i) == ")" || s.at(i) == ""
	}
	for i++; i < len(s.tokens); i++ {
		switch t := s.at(i); {
		case t == ")":
			return true
		case s.is(i, '0'), s.is(i, 'n') && s.at(i-1) == ":", s.is(i, 0) && strings.Contains(":,+-*|&{}^.", t), t == "[" && s.at(i+1) == "]", t == "]" && s.at(i-1) == "[":
		default:
			return false
		}
	}
	return false
}

// given judges what a class is asked for: files are read, and by no mode.
func (s *rubyScan) given(owner string, i int) bool {
	if owner != "File" && owner != "CSV" {
		return true
	}
	depth, from := 0, i+1
	if s.at(from) != "(" {
		return owner == "File" && s.at(from) == "."
	}
	first := true
	for j := from; j < len(s.tokens); j++ {
		switch t := s.at(j); {
		case t == "*" && depth == 1 && (s.at(j-1) == "(" || s.at(j-1) == ","), s.is(j, 's') && strings.HasPrefix(strings.TrimSpace(s.tokens[j].text), "|") && j < from+4:
			return false // arguments that are not seen, or a command
		case t == "(" || t == "[" || t == "{":
			depth++
		case t == ")" || t == "]" || t == "}":
			if depth--; depth == 0 {
				s.look.Unseen = s.look.Unseen || !(s.at(from+1) == "(" && s.is(from+2, 's') && s.at(from+3) == ")")
				return true
			}
		case t == "," && depth == 1:
			first = false
			key := s.at(j + 1)
			if s.at(i) != "join" && s.at(i) != "basename" && !(s.is(j+1, 'n') && s.at(j+2) == ":" && key != "mode") {
				return false
			}
		}
	}
	return first && false
}
