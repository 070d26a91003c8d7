package code_test

import (
	"slices"
	"testing"

	"sallyport.dev/sallyport/risk/shell/code"
)

func TestLooks(t *testing.T) {
	for program, want := range map[string][]string{ // the files that it reads
		`print(sum(range(3)))`:                                         nil,
		`print("a", end="") # done`:                                    nil,
		`print(max(1, 2) / 3 ** 4)`:                                    nil,
		`print({k: v for k, v in [("a", 1)]})`:                         nil,
		"x = [i * i for i in range(9)]\nfor y in x:\n    print(y)":     nil,
		`print(open("a.txt").read().splitlines()[0])`:                  {"a.txt"},
		`print(len(open("a", "r", encoding="utf-8").read()))`:          {"a"},
		`import json, sys; print(json.load(open("a"))["b"], sys.argv)`: {"a"},
		`from collections import Counter; print(Counter("aab"))`:       nil,
		"with open('a') as f:\n    print(sum(1 for line in f))":        {"a"},
		`import re; print(re.findall(r, "x") for r in ["a"])`:          nil,
		`print("__import__('os').remove('a')")`:                        nil,
	} {
		look, ok := code.Looks("python", program)
		if !ok || !slices.Equal(look.Reads, want) {
			t.Errorf("%q: %v, %+v: want that it only looks, and reads %q", program, ok, look, want)
		}
	}
	for program, imports := range map[string]bool{"import sys; print(sys.argv)": false, "import json": true, "import sys, csv": true, "from re import findall": true, "print(1)": false} {
		if look, ok := code.Looks("python", program); !ok || look.Imports != imports {
			t.Errorf("%q: %v, %+v", program, ok, look)
		}
	}
}

// What could do more does not pass, however it is written.
func TestLooksDoubts(t *testing.T) {
	for _, program := range []string{
		`open("a", "w")`, `open("a", mode="w")`, `open("a", "r+")`, `open(x)`, `open("a" + "b")`, `open("a", m)`, `open`, `f = open`, `[open][0]("a", "w")`,
		`map(open, ["a"])`, `print(file=open("a", "w"))`, `eval("1")`, `exec("1")`, `__import__("os")`, `getattr(print, "x")`, `print.__self__`,
		`().__class__.__base__`, `import os`, `import os.path`, `import json as j`, `import json.tool`, `from os import system`, `from json import codecs`,
		`from json import *`, `json.codecs.open("a", "w")`, `globals()["x"]`, `dict(eval=1); eval("1")`, `for eval in [1]: eval("x")`, `(1, eval in [2])`,
		`print(f"{open('a', 'w')}")`, `print(rb"a")`, `"""a" """; eval("b")`, `'''a' '''; eval("b")`, "print(1)\\\nprint(2)", "print(ｅval('1'))", `@print`,
		"def f(): pass", "lambda: 0", "class A: pass", "while 1: pass", "# coding: utf-7\nprint(1)", "1..__class__.__base__.__subclasses__", "1.5.__class__", "1if eval else 2", "# a\reval('1')", "x = 1 # \f", `x = "a` + "\n" + `"`, `breakpoint()`, `input()`, "print(`1`)",
		`print("a".format(1))`, `compile("a", "b", "exec")`, `open("a\x62", "r")`, "try:\n x\nexcept: y", `import pickle`, `print(1 if x else y)`,
	} {
		if _, ok := code.Looks("python", program); ok {
			t.Errorf("%q passes", program)
		}
	}
	for program, want := range map[string]bool{
		`console.log(1 + 2, [1, 2].map(x => x * 2), process.version)`: true, `const a = [3, 1]; console.log(JSON.stringify(a.sort()))`: true,
		`process["exit"]()`: false, `process.exit()`: false, `require("fs")`: false, `import("fs")`: false, `console.log(process.env)`: false,
		`[].map["constructor"]("return process")()`: false, `(1)["constructor"]`: false, `"a"["constructor"]`: false, "console.log(`${x}`)": false,
		`a = /"/; process.exit(); b = /"/`: false, `x.constructor`: false, `1..constructor.constructor("1")()`: false, `const {mainModule} = process`: false, `eval("1")`: false, `new Function("1")`: false,
		`console.log(globalThis)`: false, `\u0065val("1")`: false, `fetch("http://a")`: false, `console.log(1) // a`: false, `while (true) {}`: false,
	} {
		if _, ok := code.Looks("node", program); ok != want {
			t.Errorf("%q: %v, want %v", program, ok, want)
		}
	}
	if _, ok := code.Looks("ruby", `puts 1`); ok {
		t.Error("a language that is not known passes")
	}
}
