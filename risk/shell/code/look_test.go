package code_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/code"
)

func TestLooks(t *testing.T) {
	for program, want := range map[string][]string{ // the files that it reads
		`print(sum(range(3)))`:                                         nil,
		`print("a", end="") # done`:                                    nil,
		`print(max(1, 2) / 3 ** 4)`:                                    nil,
		`print({k: v for k, v in [("a", 1)]})`:                         nil,
		"x = [i * i for i in range(9)]\nfor y in x:\n    print(y)":     nil,
		`print(open("a").read().splitlines()[0])`:                      {"a"},
		`print(len(open("a", "r", encoding="utf-8").read()))`:          {"a"},
		`import json, sys; print(json.load(open("a"))["b"], sys.argv)`: {"a"},
		`from collections import Counter; print(Counter("aab"))`:       nil,
		"with open('a') as f:\n    print(sum(1 for line in f))":        {"a"},
		`import re; print(re.findall(r, "x") for r in ["a"])`:          nil,
		`print("__import__('os').remove('a')")`:                        {"__import__('os').remove('a')"},
		`print(open("a" + "b").read(), open(x))`:                       nil, `import os; print(os.cpu_count(), os.listdir("."))`: {"."}, `import json as j; print(j.dumps(1))`: nil, `print(rb"a")`: nil,
		"def f(x):\n    return x\nprint(f(1))": nil, `print((lambda x: x)(1))`: nil, "while 1: pass": nil, `print("a {:.2f}".format(1), f"{1 + 1:>{3}} {2!r}")`: {"a {:.2f}"},
		"try:\n    x\nexcept ValueError as e:\n    print(e)": nil, `print(1 if x else y)`: nil, `print("""a" """)`: nil, `import re; print(re.sub("a", "b", "c"))`: nil,
		`import xml.etree.ElementTree as ET; print([c.tag for c in ET.parse("a").getroot()])`: nil, `import pandas as pd; print(pd.read_csv("a.csv").groupby("b")["c"].agg(["sum", "mean"]))`: {"a.csv"},
		`import urllib.parse as u; print(u.quote("a b"))`: nil, `from datetime import datetime as d; print(d.now().isoformat())`: nil, `import gzip; print(gzip.open("a.gz", "rt").read())`: {"a.gz", "a.gz"},
	} {
		look, ok := code.Looks(code.Call{Language: "python", Program: program})
		if !ok || !slices.Equal(look.Reads, want) {
			t.Errorf("%q: %v, %+v: want that it only looks, and reads %q", program, ok, look, want)
		}
	}
	for program, imports := range map[string]bool{"import sys; print(sys.argv)": false, "import json": true, "import sys, csv": true, "from re import findall": true, "print(1)": false} {
		if look, ok := code.Looks(code.Call{Language: "python", Program: program}); !ok || look.Imports != imports {
			t.Errorf("%q: %v, %+v", program, ok, look)
		}
	}
}

// What could do more does not pass, however it is written.
func TestLooksDoubts(t *testing.T) {
	for _, program := range []string{
		`import os; os.remove("a")`, `import os; x = os; x.remove("a")`, `from os import remove; remove("a")`, `import os as o; o.unlink("a")`, `import os.path; os.path.os.remove("a")`,
		`import pathlib; pathlib.Path("a").unlink()`, `from pathlib import Path; Path("a").replace("b")`, `from pathlib import Path; Path("a").rename("b")`, `from pathlib import Path; Path("a").open("w")`,
		`from pathlib import Path as P; P("a").write_text("")`, `import gzip, pathlib; gzip = pathlib.Path("a"); gzip.open("w")`, `import gzip; gzip.open("a", "wb")`, `import zipfile; zipfile.ZipFile("a", "w")`,
		`import zipfile as z; z.ZipFile("a").extractall()`, `import tarfile; tarfile.open("a", "w")`, `import tarfile; tarfile.open("a").extractall("b")`, `open("a", "r" "+")`, `open("a", "r" if 0 else "w")`, `open(*["a", "w"])`,
		`open("a", **{"mode": "w"})`, `open("a", f"w")`, `print(f"{open('a', 'w')}")`, `print(f"{__import__('os')}")`, `print(f"{x:{open('a', 'w')}}")`, `print("{0.__class__}".format(1))`, `print("{0[a]}".format(x))`, `fmt = "{0.a}"; fmt.format(1)`,
		`import yaml; yaml.load("a")`, `from yaml import load`, `import pandas as pd; pd.read_pickle("a")`, `import pandas as pd; pd.read_csv("a").to_csv("a")`, `import pandas as pd; pd.read_csv("a").agg("to_csv")`,
		`import pandas as pd; pd.read_csv("a").agg("to" "_csv")`, `import pandas as pd; pd.read_csv("a").query("@pd.x")`, `import pandas as pd; pd.read_csv("a").apply("to_csv")`, `import pandas as pd; pd.read_csv("a").to_string("b")`,
		`import pandas as pd; pd.read_csv("http://x.example")`, `import pandas as pd; pd.read_csv("ht" + "tp://x")`, `import pandas as pd; pd.set_option("plotting.backend", "evil")`, `import pandas as pd; pd.read_csv("a").eval("1")`,
		`import numpy as np; np.save("a", 1)`, `import numpy as np; np.load("a", allow_pickle=True)`, `import torch; torch.load("a")`, `import xml.etree.ElementTree as ET; ET.parse("a").write("b")`,
		`import sys, xml.etree.ElementTree as ET; sys.stdout = ET.parse("a"); sys.stdout.write("b")`, `import sys; sys.path.insert(0, "x"); import json`, `import sys, json; sys.path[0] = "x"`, `from sys import path; import json`,
		`import sys; sys.modules["os"].remove("a")`, `import operator; operator.attrgetter("a")`, `import random; random._os.remove("a")`, `import subprocess`, `import shutil; shutil.rmtree("a")`, `import importlib; importlib.import_module("a")`,
		`import timeit; timeit.timeit("1")`, `import socket`, `import urllib.request`, `import uuid; uuid.getnode()`, `import logging`, `import sqlite3`, `import pickle`, `x = getattr`, `class A:\n def __init__(self): pass`,
		`json = 1; import evil`, `import evil.json`, `from . import x`, `from evil import load`, `vars()["a"]`, `type(f)(f.__code__, {})`, `open("a", "w")`, `open("a", mode="w")`, `open("a", "r+")`, `open("a", m)`, `open`, `f = open`, `[open][0]("a", "w")`,
		`map(open, ["a"])`, `print(file=open("a", "w"))`, `eval("1")`, `exec("1")`, `__import__("os")`, `getattr(print, "x")`, `print.__self__`,
		`().__class__.__base__`, `import json.tool`, `from os import system`, `from json import codecs`,
		`from json import *`, `json.codecs.open("a", "w")`, `globals()["x"]`, `dict(eval=1); eval("1")`, `for eval in [1]: eval("x")`, `(1, eval in [2])`,
		`print(f"{open('a', 'w')}")`, `"""a" """; eval("b")`, `'''a' '''; eval("b")`, "print(1)\\\nprint(2)", "print(ｅval('1'))", `@print`,
		"# coding: utf-7\nprint(1)", "1..__class__.__base__.__subclasses__", "1.5.__class__", "1if eval else 2", "# a\reval('1')", "x = 1 # \f", `x = "a` + "\n" + `"`, `breakpoint()`, "print(`1`)",
		`compile("a", "b", "exec")`, `import pickle`,
	} {
		if _, ok := code.Looks(code.Call{Language: "python", Program: program}); ok {
			t.Errorf("%q passes", program)
		}
	}
	for program, want := range map[string]bool{
		`console.log(1 + 2, [1, 2].map(x => x * 2), process.version)`: true, `const a = [3, 1]; console.log(JSON.stringify(a.sort()))`: true,
		`console.log(require("./a.json").b.c[0]["d"])`: false, `({...fs.rmSync("a")})`: false, `console.log({...fs.readdirSync(".")})`: true, `const fs = require("fs"); console.log(JSON.parse(fs.readFileSync("a", "utf8")).b)`: true, `const {readFileSync: r} = require("node:fs"); console.log(r("a").length)`: true,
		`import { readFileSync } from "node:fs"; console.log(readFileSync("a", {encoding: "utf8"}).split(/\n/).length)`: true, `let s = ""; process.stdin.on("data", d => s += d).on("end", () => console.log(s.length))`: true,
		"console.log(`${1 + 1} ${`a`}`)": true, `for (let i = 0; i < 3; i++) { console.log([1, 2, 3][i]) }`: true, `while (true) {}`: true, `console.log(1) // a`: true, `console.log(process.env.PATH)`: true, `process.exit()`: true,
		`const f = ({a, b: c}, [d]) => a + c + d; console.log(f({a: 1, b: 2}, [3]))`: true, `console.log(a / 2, "x".replace(/a\/b/g, "c"))`: false, `const a = 4; console.log(a / 2, "x".replace(/a\/b/g, "c"))`: true,
		`require("crypto").createHash("sha1").update("a").digest("hex")`: true, `console.log(path.join("a", "b"))`: true,
		`process["exit"]()`: false, `require("fs")`: false, `import("fs")`: false, `[].map["constructor"]("return process")()`: false, `(1)["constructor"]`: false, `"a"["constructor"]`: false, `[].map["con" + "structor"]("1")()`: false,
		`const k = "constructor"; [].map[k]("1")()`: false, `const {constructor: F} = x => x; F("1")()`: false, `const {["constructor"]: F} = x => x`: false, `const {"\x63onstructor": F} = x => x`: false, `x => x.constructor`: false,
		`a = /"/; process.exit(); b = /"/`: false, `1..constructor.constructor("1")()`: false, `const {mainModule} = process`: false, `eval("1")`: false, `new Function("1")`: false, `(1 ? 0 || eval : 0)("1")`: false, `[eval][0]("1")`: false,
		`console.log(globalThis)`: false, `\u0065val("1")`: false, `fetch("http://a")`: false, `fs.writeFileSync("a", "")`: false, `fs.readFileSync("a", {flag: "w"})`: false, `fs.readFileSync("a", "utf8", ...x)`: false, `fs.createReadStream("a", {flags: "w"})`: false,
		`const f = fs; f.unlinkSync("a")`: false, `(f => f.unlinkSync("a"))(fs)`: false, `(x => x.unlinkSync("a"))(1, y = require("fs"))`: false, `const {unlinkSync: r} = require("fs")`: false, `const {exec} = require("child_process")`: false,
		`(child_process => 0); child_process.execSync("a")`: false, `child_process.execSync("a")`: false, `require("./evil")`: false, `require("./evil.js")`: false, `require("evil.json")`: false, `require("./a.json" + "")`: false, `require(x)`: false, `require.main`: false,
		`process.on("x", () => 1).kill(1)`: false, `process.kill(1)`: false, `process.binding("fs")`: false, `const p = process; p.kill(1)`: false, `process.getBuiltinModule("fs")`: false, `Error.prepareStackTrace = (e, f) => f`: false,
		`(function () { return this })().process`: false, `class A {}`: false, "String.raw`a`": false, "console.log(`${fs.rmSync('a')}`)": false, "if (1) /\"/; process.kill(1); /\"/": false, `a++ / b; process.kill(1) / c`: false,
		"console.log(1) <!-- `\nprocess.kill(1)": false, "// \u2028 process.kill(1)": false, `with (process) kill(1)`: false, `import.meta.dirname`: false, `import fs from "fs"; fs.rmSync("a")`: false, `import * as f from "fs"; f["rmSync"]("a")`: false,
		`Object.getOwnPropertyDescriptor(x => x, "a")`: false, `Reflect.get(1, "a")`: false, `setTimeout("a")`: false, `localStorage.a = 1`: false, `console.log.call(1)`: false, `var o = {get a() { return 1 }}`: false,
	} {
		if _, ok := code.Looks(code.Call{Language: "node", Program: program}); ok != want {
			t.Errorf("%q: %v, want %v", program, ok, want)
		}
	}
	if _, ok := code.Looks(code.Call{Language: "lua", Program: `print(1)`}); ok {
		t.Error("a language that is not known passes")
	}
}

// What may be imported from the folder is critical to write there.
func TestModulesCannotBePlanted(t *testing.T) {
	for module := range code.Modules {
		name, _, _ := strings.Cut(module, ".")
		for _, file := range []string{name + ".py", "src/" + name + ".py", name + "/__init__.py"} {
			if !paths.Executed(file) {
				t.Errorf("%s may be written, and then be imported", file)
			}
		}
	}
}
