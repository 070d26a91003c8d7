# Sallyport. `make` alone lists the targets; CONTRIBUTING.md says more.
#
# Needs Go and Debian 12 (elsewhere it says what to install). Every step prints
# what it does and how far it is; what is up to date is not made again.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory

TAGS     := gore2regex
LDFLAGS  := -s -w
PROGRAMS := $(wildcard cmd/*)
FUZZTIME ?= 10s
LINT     := go tool -modfile=tools/go.mod golangci-lint

# The programs are static; only the race detector needs cgo. The version comes
# from the code, not from the folder's git state, so that builds can be compared.
export CGO_ENABLED := 0
BUILD := go build -trimpath -buildvcs=false -tags $(TAGS) -ldflags '$(LDFLAGS)'

.PHONY: help build programs image kernel workerd guest-kernel data run test npm postgres check race fuzz escape conformance browser crash soak bench bench-tiers corpus mariadb chromium cgroup2 clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

build: programs image kernel workerd ## programs in bin/; the sandbox image, a guest kernel and workerd in the cache; QEMU
	@echo "[6/6] SQL parser, compiled once to machine code"
	@bin/sallyport warm
	@echo "built: $$(ls bin | xargs)"

programs:
	@echo "[1/6] checking for tools"
	@tools/need go= git=git
	@echo "[2/6] building $(notdir $(PROGRAMS))"
	@mkdir -p bin
	@total=$$(go list -deps -tags $(TAGS) $(PROGRAMS:%=./%) 2> >(tools/progress >&2) | wc -l); \
	$(BUILD) -v -o bin/ $(PROGRAMS:%=./%) 2>&1 | tools/progress -v total=$$total

image:
	@echo "[3/6] sandbox image"
	@go run -trimpath -buildvcs=false ./image/buildimage

# FORCE=-force fetches Debian's newest.
kernel:
	@echo "[4/6] guest kernel, and QEMU"
	@[ "$$(uname -m)" != x86_64 ] || tools/need qemu-system-x86_64=qemu-system-x86 || echo "      without it there are no microVMs here; all else works"
	@go run -trimpath -buildvcs=false ./microvm/kernel/buildkernel $(FORCE) || echo "      without it there are no microVMs here; all else works"

# The runtime of V8 isolates, where npm is.
workerd:
	@echo "[5/6] V8 isolates"
	@go run -trimpath -buildvcs=false ./isolate/workerd/getworkerd

guest-kernel: ## a small guest kernel that boots faster, compiled from Debian's source (many minutes, optional)
	@tools/need go= nice=coreutils make=make gcc=gcc,libc6-dev flex=flex bison=bison bc=bc lz4=lz4 xz=xz-utils tar=tar
	@[ -e /usr/include/libelf.h ] || tools/need libelf.h=libelf-dev
	@echo "==> small guest kernel"
	@go run -trimpath -buildvcs=false ./microvm/kernel/buildkernel $(FORCE) small

data: ## the image with numpy, pandas and matplotlib (140 MB of packages, optional)
	@echo "==> data image"
	@go run -trimpath -buildvcs=false ./image/buildimage data

run: build ## build, play the demo, then serve until Ctrl-C
	@programs=$$(sha256sum bin/sallyport*); \
	if [ "$$(id -u)" != 0 ]; then \
		echo "==> not root: no demo and no sandboxes, so tools that run code are refused"; \
	elif [ "$$programs" = "$$(cat bin/.demo 2>/dev/null)" ]; then \
		echo "==> demo: held with these programs (bin/sallyport demo plays it again)"; \
	else \
		echo "==> demo: two attacks on a throw-away gateway"; \
		bin/sallyport demo || { echo "==> the demo failed; bin/sallyport init and bin/sallyport serve --welcome start without it"; exit 1; }; \
		echo "$$programs" >bin/.demo; \
	fi
	@data=$${SALLYPORT_DATA:-$$HOME/.local/state/sallyport}; \
	if [ ! -e "$$data/sallyport.yaml" ]; then echo "==> first run: making $$data"; bin/sallyport init; fi
	@echo "==> serving"
	@exec bin/sallyport serve --welcome

test: build data npm postgres mariadb chromium ## every test; ends with "N passed, N failed"
	@tools/need ip=iproute2
	@echo "==> vet"
	@go vet -tags $(TAGS) ./...
	@echo "==> tests"
	@SALLYPORT_BROWSER=1 SALLYPORT_BIN=$(CURDIR)/bin go run ./test/run -- -tags $(TAGS) -p 2 -count 1 -timeout 20m ./...

# A real PostgreSQL server; tests start it in temporary folders.
postgres:
	@tools/need initdb=postgresql

# Real MCP servers and clients, the Node.js that they need, and the runtime of V8
# isolates, which `make build` leaves out where npm is not yet there.
npm:
	@tools/need node=nodejs npm=npm
	@if ! cmp -s test/package-lock.json test/node_modules/.installed; then \
		echo "==> npm packages for the tests"; \
		cd test; \
		npm ci --loglevel=error; \
		cd node_modules; \
		node=(node-linux-*/bin/node); \
		ln -sf "../$${node[0]}" .bin/node; : "npm 9 drops this link with the package of the other processor"; \
		cp ../package-lock.json .installed; \
	fi
	@go run -trimpath -buildvcs=false ./isolate/workerd/getworkerd -must

check: ## formatting, vet and linters
	@echo "[1/3] gofmt"
	@out=$$(git ls-files '*.go' | xargs gofmt -l); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	@echo "[2/3] vet"
	@go vet -tags $(TAGS) ./...
	@echo "[3/3] linters (built from source the first time: several minutes)"
	@$(LINT) run ./...

race: build postgres ## the tests under the race detector (needs a C compiler)
	@tools/need gcc=gcc,libc6-dev
	@SALLYPORT_BIN=$(CURDIR)/bin CGO_ENABLED=1 go run ./test/run -- -race -tags $(TAGS) -p 2 -count 1 -timeout 20m ./...

fuzz: ## each fuzz target for FUZZTIME (10s)
	@git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u | while read -r dir; do \
		sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$dir"/*_test.go | while read -r f; do \
			echo "==> $$dir $$f"; \
			go test -tags $(TAGS) -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "./$$dir" </dev/null; \
		done; \
	done

corpus: build postgres mariadb ## executes every line of the corpora; what the analysers stop, and alarm about
	@SALLYPORT_BIN=$(CURDIR)/bin SALLYPORT_CORPUS=1 go test -tags $(TAGS) -count 1 -timeout 60m -v -run 'TestCorpora|TestEffectsIn|TestShellEffects' ./risk

# MariaDB's server for the tests that execute SQL.
mariadb:
	@PATH=$$PATH:/usr/sbin tools/need mariadbd=mariadb-server-core mariadb-install-db=mariadb-server-core my_print_defaults=mariadb-client-core

# What TIER leaves of them: each tier's own packages.
ESCAPE_gvisor := ./gvisor/... ./tier/session ./sandboxd/...
ESCAPE_microvm := ./microvm
ESCAPE_isolate := ./isolate ./cage/...
ESCAPE_wasm := ./wasm ./cage/...
ESCAPE_ := $(ESCAPE_microvm) $(ESCAPE_gvisor) ./isolate ./wasm ./cage/...

escape: build ## attacks from inside real sandboxes, each with its control; TIER=microvm: of that tier only
	@[ "$(ESCAPE_$(TIER))" ] || { echo "TIER=$(TIER): there are gvisor, microvm, isolate and wasm"; exit 2; }
	@tools/need ip=iproute2 node=nodejs
	@SALLYPORT_BIN=$(CURDIR)/bin SALLYPORT_ESCAPE=1 SALLYPORT_TIER=$(TIER) go run ./test/run -- -tags $(TAGS) -p 2 -count 1 -timeout 60m ./test/escape ./tier/tiertest $(ESCAPE_$(TIER))

# Needs QEMU and a kernel (60 MB of packages); where this machine has version 1 of
# control groups, the tests of version 2 run in a machine of their own.
cgroup2: ## control groups of version 2, in a machine of its own (installs QEMU)
	@tools/need qemu-system-x86_64=qemu-system-x86 apt-get=apt dpkg-deb=dpkg
	@kernel=$$(ls bin/kernel/boot/vmlinuz-* 2>/dev/null | tail -1 || true); \
	if [ -z "$$kernel" ]; then \
		echo "==> fetching a kernel"; \
		name=$$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/ *Depends: \(linux-image-.*\)/\1/p' | head -1); \
		mkdir -p bin/kernel; \
		(cd bin/kernel; apt-get download -q "$$name"; dpkg-deb -x "$$name"_*.deb .; rm -rf -- *.deb lib usr); \
		kernel=$$(ls bin/kernel/boot/vmlinuz-* | tail -1); \
	fi; \
	SALLYPORT_SOAK=1 SALLYPORT_KERNEL=$$PWD/$$kernel go test -tags $(TAGS) -count 1 -timeout 10m -v -run 'TestVersion2InAMachine|TestReal' ./tier/cgroup

conformance: build npm postgres ## the world's clients and servers, and the protocol's own suite, through a real gateway
	@rm -f bin/.conformance
	@SALLYPORT_BIN=$(CURDIR)/bin SALLYPORT_CONFORMANCE_REPORT=$(CURDIR)/bin/.conformance go run ./test/run -- -tags $(TAGS) -count 1 -timeout 20m ./test/conformance/... ./test/suite/... ./test/matrix/... ./toolkit/... || { cat bin/.conformance; exit 1; }
	@cat bin/.conformance

# A browser, and what drives it.
chromium:
	@tools/need node=nodejs npm=npm chromium=chromium
	@cd test/browser; cmp -s package-lock.json node_modules/.installed || { npm ci --loglevel=error; cp package-lock.json node_modules/.installed; }

browser: build npm chromium ## the approvers' page in Chromium
	@SALLYPORT_BROWSER=1 SALLYPORT_BIN=$(CURDIR)/bin go run ./test/run -- -tags $(TAGS) -count 1 -timeout 10m ./test/browser/...

crash: build npm postgres ## SIGKILL at every durable boundary and at any moment, with a report; SALLYPORT_SOAK=1: 1,000 times
	@rm -f bin/.crash
	@SALLYPORT_BIN=$(CURDIR)/bin SALLYPORT_CRASH_REPORT=$(CURDIR)/bin/.crash go run ./test/run -- -tags $(TAGS) -count 1 -timeout 120m ./test/crash/... || { cat bin/.crash; exit 1; }
	@cat bin/.crash

soak: build postgres ## long runs: 1,000 kills, 1,000 sandboxes, 300 histories of reservations, 100,000 calls
	@SALLYPORT_BIN=$(CURDIR)/bin SALLYPORT_SOAK=1 go run ./test/run -- -tags $(TAGS) -count 1 -timeout 120m ./test/crash/... ./gvisor/... ./tier/session ./microvm ./isolate ./wasm ./backend/sandbox ./store/... ./test/bench

bench: build ## latency and CPU beside a direct call and a plain proxy
	@bin/sallyport bench
	@SALLYPORT_BIN=$(CURDIR)/bin go test -tags $(TAGS) -run '^$$' -bench . ./test/bench
	@go test -tags $(TAGS) -run '^$$' -bench . -benchtime 1x ./image
	@go test -tags $(TAGS) -run '^$$' -bench . ./gateway/... ./mcpserver ./oauth ./limit/... ./catalog ./cedar ./risk ./redact/... ./secret ./store/sqlite

bench-tiers: build ## each tier: first run, cold, from a sandbox that waits, memory of one that waits
	@SALLYPORT_BIN=$(CURDIR)/bin go test -tags $(TAGS) -run '^$$' -bench BenchmarkTiers -benchtime 1x -v ./test/bench

clean: ## remove bin/ and the tests' npm packages (the cache folder stays)
	@rm -rf bin test/node_modules
