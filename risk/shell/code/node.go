package code

import (
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// jsModules are what Node's modules are known to do nothing with but calculate,
// read and print. process is one of them here.
var jsModules = map[string]map[string]bool{
	"fs":          word.Set(`readFileSync readdirSync existsSync statSync lstatSync realpathSync readlinkSync`),
	"fs/promises": word.Set(`readFile readdir stat lstat realpath readlink`),
	"path":        word.Set(`join resolve basename dirname extname relative normalize sep parse format isAbsolute posix delimiter`),
	"os":          word.Set(`cpus totalmem freemem hostname platform arch release type uptime loadavg networkInterfaces homedir tmpdir EOL userInfo version machine availableParallelism endianness`),
	"crypto":      word.Set(`createHash createHmac randomUUID randomBytes randomInt getHashes timingSafeEqual hash pbkdf2Sync scryptSync`),
	"url":         word.Set(`parse URL URLSearchParams fileURLToPath pathToFileURL format resolve domainToASCII domainToUnicode`),
	"util":        word.Set(`inspect format isDeepStrictEqual types styleText`),
	"zlib":        word.Set(`gunzipSync gzipSync inflateSync deflateSync brotliDecompressSync crc32`),
	"querystring": word.Set(`parse stringify escape unescape`),
	"readline":    word.Set(`createInterface`),
	"buffer":      word.Set(`Buffer`),
	"process": word.Set(`version versions platform arch argv pid uptime cwd memoryUsage hrtime stdin stdout stderr exit exitCode env nextTick release features execPath cpuUsage
		resourceUsage`),
}

// jsGlobals may be used, called or not, jsWords are the language's own.
var (
	jsGlobals = word.Set(`console JSON Math Number String Boolean Array Object Date parseInt parseFloat isNaN isFinite Set Map RegExp Intl BigInt URL URLSearchParams Buffer TextEncoder TextDecoder
		encodeURIComponent decodeURIComponent encodeURI decodeURI escape unescape btoa atob structuredClone Error TypeError RangeError Uint8Array Int32Array Float64Array`)
	jsWords = word.Set(`const let var true false null undefined NaN Infinity of in if else for while do break continue return function typeof new switch case default try catch finally throw
		instanceof async await`)
	jsOperators = word.Set(`return typeof case in of throw new else do instanceof await`)
	jsForbids   = word.Set(`require import export eval Function globalThis global this module exports class delete void with yield Reflect Proxy WebAssembly fetch arguments super debugger
		process Symbol constructor
		assert async_hooks child_process cluster constants dgram diagnostics_channel dns domain events http http2 https inspector module net perf_hooks punycode repl sea sqlite stream string_decoder sys
		test timers tls trace_events tty v8 vm wasi worker_threads AbortController AbortSignal Blob BroadcastChannel ByteLengthQueuingStrategy clearImmediate clearInterval clearTimeout CloseEvent
		CompressionStream CountQueuingStrategy CryptoKey CustomEvent DecompressionStream DOMException Event EventSource EventTarget ErrorEvent File FormData Headers localStorage sessionStorage Storage
		MessageChannel MessageEvent MessagePort navigator Navigator performance Performance queueMicrotask ReadableStream Request Response setImmediate setInterval setTimeout SharedArrayBuffer
		SubtleCrypto TransformStream URLPattern WebSocket Worker WritableStream Iterator AsyncFunction GeneratorFunction FinalizationRegistry WeakRef Atomics ShadowRealm window document root`)
)

// jsOut are members by which code is made of text, or that lead there.
var jsOut = word.Set(`constructor prototype caller callee getPrototypeOf setPrototypeOf defineProperty defineProperties getOwnPropertyDescriptor getOwnPropertyDescriptors getOwnPropertyNames
	getOwnPropertySymbols create apply call bind prepareStackTrace captureStackTrace getThis getFunction getBuiltinModule __proto__ mainModule binding dlopen fromAsync connect listen`)

func jsLooks(text string) (Look, bool) {
	s := jsScan{text: text, alias: map[string]string{}, bound: map[string]bool{}, skip: map[int]bool{}}
	if len(text) > 1<<13 || strings.ContainsAny(text, "\r\f\v\x00") {
		return Look{}, false
	}
	if _, ok := s.cut(0, false); !ok || !s.modules() {
		return Look{}, false
	}
	s.binds()
	for i := range s.tokens {
		if !s.skip[i] && !s.allowed(i) {
			return Look{}, false
		}
	}
	return s.look, true
}

// modules reads every require and import.
func (s *jsScan) modules() bool {
	for i := range s.tokens {
		switch {
		case s.skip[i] || !s.is(i, 'n') || s.dotted(i):
		case s.at(i) == "require" && !s.requires(i), s.at(i) == "import" && !s.imports(i):
			return false
		}
	}
	return true
}

// requires reads require("x") of a module, with what is taken from it. A file is never
// only read: "./x.json" may be a folder with code, or a link to code.
func (s *jsScan) requires(i int) bool {
	if s.at(i+1) != "(" || !s.is(i+2, 's') || s.at(i+3) != ")" || strings.ContainsAny(s.tokens[i+2].text, `\`) {
		return false
	}
	name := strings.TrimPrefix(s.tokens[i+2].text, "node:")
	for k := i; k < i+4; k++ {
		s.skip[k] = true
	}
	members := jsModules[name]
	switch {
	case members == nil:
		return false
	case s.at(i+4) == ".":
		s.skip[i+5] = true
		return members[s.at(i+5)] && s.given(name+"."+s.at(i+5), i+5)
	case s.at(i-1) != "=":
		return false
	case s.at(i-2) == "}":
		return s.taken(i-2, members, name)
	}
	declared := s.at(i - 3)
	if !s.is(i-2, 'n') || declared != "const" && declared != "let" && declared != "var" || s.alias[s.at(i-2)] != "" {
		return false
	}
	s.alias[s.at(i-2)] = name
	s.skip[i-2] = true
	return s.at(i+4) == ";" || s.at(i+4) == "," || s.is(i+4, 'n') && jsWords[s.at(i+4)] || i+4 == len(s.tokens) || s.is(i+4, 'n')
}

// named notes what a name stands for. One that stands for two things in different
// blocks is not read.
func (s *jsScan) named(name, what string) bool {
	known := s.alias[name]
	s.alias[name] = what
	return known == "" || known == what
}

// taken reads {a, b: c} that ends at token i, whose members come from a module.
func (s *jsScan) taken(i int, members map[string]bool, module string) bool {
	for i--; i >= 0; i-- {
		switch t := s.at(i); {
		case t == "{":
			return true
		case t == ",":
		case s.is(i, 'n') && (s.at(i-1) == ":" || s.at(i-1) == "as") && s.is(i-2, 'n'):
			if !members[s.at(i-2)] {
				return false
			}
			if !s.named(t, module+"."+s.at(i-2)) {
				return false
			}
			s.skip[i], s.skip[i-2] = true, true
			i -= 2
		case s.is(i, 'n') && members[t]:
			if !s.named(t, module+"."+t) {
				return false
			}
			s.skip[i] = true
		default:
			return false
		}
	}
	return false
}

// imports reads import fs from "fs", import * as fs from "fs", import {a} from "fs".
func (s *jsScan) imports(i int) bool {
	from := i
	for from < len(s.tokens) && s.at(from) != "from" {
		from++
	}
	if !s.is(from+1, 's') || strings.Contains(s.tokens[from+1].text, `\`) {
		return false
	}
	name := strings.TrimPrefix(s.tokens[from+1].text, "node:")
	members := jsModules[name]
	switch {
	case members == nil:
		return false
	case s.at(from-1) == "}" && s.at(i+1) == "{":
		if !s.taken(from-1, members, name) {
			return false
		}
	case from == i+2 && s.is(i+1, 'n'), from == i+4 && s.at(i+1) == "*" && s.at(i+2) == "as":
		if !s.named(s.at(from-1), name) {
			return false
		}
	default:
		return false
	}
	for k := i; k <= from+1; k++ {
		s.skip[k] = true
	}
	return true
}

// binds finds the names that the program gives to values of its own.
func (s *jsScan) binds() {
	for i, t := range s.tokens {
		before := s.at(i - 1)
		if t.kind != 'n' || s.dotted(i) || jsWords[t.text] {
			continue
		}
		switch {
		case before == "const", before == "let", before == "var", before == "function", s.at(i+1) == "=" && s.at(i+2) == ">":
			s.bound[t.text] = true
		case before == "{" || before == "," || before == "[" || before == "(" || before == ":" || before == ".":
			s.bound[t.text] = s.bound[t.text] || s.parameter(i)
		}
	}
}

// parameter tells a name in the brackets before => or after function, catch, const.
func (s *jsScan) parameter(i int) bool {
	depth := 0
	for j := i; j < len(s.tokens); j++ {
		switch s.at(j) {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			if depth--; depth < 0 {
				next := s.at(j + 1)
				if s.at(j) == ")" && (next == "=" && s.at(j+2) == ">" || next == "{") || s.at(j) != ")" && (next == "=" && s.at(j+2) != "=" || next == "of") {
					return true
				}
				if s.at(j) == ")" || next != "," && next != ")" && next != "]" && next != "}" {
					return false
				}
				depth = 0
			}
		case ";":
			return false
		}
	}
	return false
}

func (s *jsScan) allowed(i int) bool {
	t := s.tokens[i]
	switch {
	case t.kind == 's':
		if strings.ContainsAny(t.text, "./") && len(t.text) < 256 {
			s.look.Reads = append(s.look.Reads, t.text)
		}
		return !jsOut[t.text] && !strings.Contains(t.text, "__proto__") && !(strings.Contains(t.text, `\`) && s.at(i+1) == ":")
	case t.text == "[" && t.kind == 0:
		return s.bracket(i)
	case t.kind != 'n':
		return true
	}
	switch {
	case s.dotted(i):
		return s.member(i)
	case jsOut[t.text] || strings.HasPrefix(t.text, "__"):
		return false
	case s.alias[t.text] != "" && jsModules[s.alias[t.text]] != nil:
		return s.at(i+1) == "."
	case s.alias[t.text] != "":
		return s.given(s.alias[t.text], i)
	case t.text == "process" && !s.bound["process"]:
		return s.at(i+1) == "."
	case s.at(i+1) == ":" && (s.at(i-1) == "{" || s.at(i-1) == ","):
		return true // a key
	case jsForbids[t.text]:
		return false
	case s.bound[t.text]:
		return !jsGlobals[t.text] && jsModules[t.text] == nil
	case jsModules[t.text] != nil: // without a file, Node has its modules at hand
		s.alias[t.text] = t.text
		return s.at(i+1) == "."
	}
	return jsWords[t.text] || jsGlobals[t.text]
}

// dotted tells a member: a name behind one dot, and not behind the three that spread.
func (s *jsScan) dotted(i int) bool {
	return s.at(i-1) == "." && !(s.at(i-2) == "." && s.at(i-3) == ".")
}

func (s *jsScan) member(i int) bool {
	name, before := s.at(i), s.at(i-2)
	if before == "?" { // a?.b
		before = s.at(i - 3)
	}
	if jsOut[name] || strings.HasPrefix(name, "_") {
		return false
	}
	module := s.alias[before]
	if before == "process" {
		module = "process"
	}
	if s.is(i-2, 'n') && !s.dotted(i-2) && jsModules[module] != nil {
		return jsModules[module][name] && s.given(module+"."+name, i)
	}
	return true
}

// given judges what a module gives.
func (s *jsScan) given(what string, i int) bool {
	module, name, _ := strings.Cut(what, ".")
	switch {
	case what == "process.env":
		s.look.Environment = true
	case module == "fs" || module == "fs/promises":
		return s.reads(name, i)
	}
	return true
}

// reads judges a call that reads a file, perhaps by an encoding: its other
// options can write.
func (s *jsScan) reads(name string, i int) bool {
	if s.at(i+1) != "(" {
		return false
	}
	depth, commas, last := 0, 0, i+1
	for j := i + 1; j < len(s.tokens); j++ {
		switch s.at(j) {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		case ",":
			if depth == 1 {
				commas, last = commas+1, j
			}
		}
		if depth > 0 {
			continue
		}
		if s.is(i+2, 's') && (i+3 == j || s.at(i+3) == ",") && !strings.Contains(s.tokens[i+2].text, `\`) {
			s.look.Reads = append(s.look.Reads, s.tokens[i+2].text)
		} else {
			s.look.Unseen = s.look.Unseen || strings.HasPrefix(name, "readFile")
		}
		encoding := s.is(last+1, 's') && last+2 == j || s.at(last+1) == "{" && s.at(last+2) == "encoding" && s.is(last+4, 's') && s.at(last+5) == "}" && last+6 == j
		return !strings.HasPrefix(name, "readFile") && s.at(i+2) != "." || commas == 0 && s.at(i+2) != "." || commas == 1 && encoding && s.at(i+2) != "."
	}
	return false
}

// bracket judges [: a list, or a member by a number or a name that is seen. Where
// a name is made at run time it may be constructor.
func (s *jsScan) bracket(i int) bool {
	before := s.at(i - 1)
	value := i > 0 && (s.is(i-1, 's') || s.is(i-1, '0') || s.is(i-1, 'r') || before == ")" || before == "]" || before == "}" || s.is(i-1, 'n') && (s.at(i-2) == "." || !jsWords[before]))
	if before == "." && s.at(i-2) == "?" {
		value = true
	}
	end, depth := i, 0
	for ; end < len(s.tokens); end++ {
		if t := s.at(end); t == "[" {
			depth++
		} else if t == "]" {
			if depth--; depth == 0 {
				break
			}
		}
	}
	if !value {
		return s.at(end+1) != ":" // {[name]: …}
	}
	return end == i+2 && (s.is(i+1, '0') || s.is(i+1, 's') && !strings.Contains(s.tokens[i+1].text, `\`)) && !jsModuleValue(s, i-1) || end == i+2 && s.counts(s.at(i+1))
}

func jsModuleValue(s *jsScan, i int) bool {
	return s.is(i, 'n') && !s.dotted(i) && (jsModules[s.at(i)] != nil || jsModules[s.alias[s.at(i)]] != nil)
}

// counts tells a name that is a number: it begins as one and is only counted.
func (s *jsScan) counts(name string) bool {
	sets := 0
	for i := range s.tokens {
		if s.at(i) != name || s.at(i-1) == "." {
			continue
		}
		switch next := s.at(i + 1); {
		case s.at(i-1) == ":", s.at(i-1) == "[" && !s.ends(i-2): // taken apart: [name] = …, {a: name} = …
			return false
		case next == "=" && s.at(i+2) != "=" && s.at(i+2) != ">":
			if sets++; !s.is(i+2, '0') || s.at(i+3) != ";" && s.at(i+3) != "," {
				return false
			}
		case (next == "+" || next == "-" || next == "*" || next == "|" || next == "?" || next == "&") && (s.at(i+2) == "=" || s.at(i+3) == "="),
			s.at(i+1) == "=" && s.at(i+2) == ">", s.at(i+1) == "of", s.at(i+1) == "in", s.at(i+1) == ",", s.at(i-1) == "," || s.at(i-1) == "{" || s.at(i-1) == "(":
			return false
		}
	}
	return sets == 1
}

// ends tells that a value surely ends at a token, so that a bracket behind it is
// for a member.
func (s *jsScan) ends(i int) bool {
	return s.is(i, 's') || s.is(i, 'n') && (s.at(i-1) == "." || !jsWords[s.at(i)]) || s.at(i) == "]" && i > 1 || s.at(i) == ")" && s.called(i)
}
