# Follows tree.sh: what a folder may hold that looks like data and is code. A judge
# sees none of it, so no line that would run it may pass.
mkdir -p plug.json conf.d/main.json node_modules/foo node_modules/.bin pkg app lib sub.json
cp script.js plug.json/index.js
cp script.js conf.d/main.json/index.js
ln -s script.js conf.json
printf '{"main": "../script.js"}\n' >pkg/package.json
printf '{"main": "../script.js"}\n' >sub.json/package.json
printf '{"name": "shop", "version": "1.2.3", "main": "script.js", "scripts": {"test": "sh run.sh", "prepare": "sh run.sh"}}\n' >package.json
cp script.js node_modules/foo/index.js
cp run.sh node_modules/.bin/eslint
cp script.js ext.mjs
sed 's/require("fs")/process.mainModule.require("fs")/' script.js >ext.cjs
cp script.py mymod.py
cp script.py app/__main__.py
cp script.py app/__init__.py
cp script.py setup.py
cp script.py conftest.py
python3 -c 'import zipfile; z = zipfile.ZipFile("app.zip", "w"); z.write("script.py", "__main__.py"); z.close()'
python3 -c 'import pickle, os; open("x.pkl", "wb").write(b"cos\nsystem\n(S\"sh run.sh\"\ntR.")'
printf 'system("sh run.sh");\n1;\n' >lib/Evil.pm
cp lib/Evil.pm prog.pl
printf '.shell sh run.sh\n' >init.sql
printf 'DELETE FROM orders;\n' >purge.sql
printf -- '--checkpoint=1\n--checkpoint-action=exec=sh run.sh\na\nb\nc\n' >members.txt
printf 'echo spoiled >important.txt\n' >'|sh run.sh'
printf 'x\n' >'sh run.sh|'
printf 'all:\n\t@echo all\nX := $(shell sh run.sh)\n' >sub/Makefile
printf '[loggers]\nkeys=root\n[handlers]\nkeys=h\n[formatters]\nkeys=\n[logger_root]\nhandlers=h\n[handler_h]\nclass=__import__("os").system("sh run.sh")\nargs=()\n' >log.ini
git init -q evilrepo
git -C evilrepo commit -q --allow-empty -m first
printf '[alias]\n\tst = !sh ../run.sh\n[core]\n\tpager = sh $HOME/project/run.sh\n[diff]\n\texternal = sh $HOME/project/run.sh\n' >>evilrepo/.git/config
