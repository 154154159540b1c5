# SPDX-License-Identifier: Apache-2.0
#
# make build   the programs, in bin/; bin/cni is a CNI binary directory
# make help    this list
# make test    every package for itself, in throw-away namespaces, in minutes; PKG='blocks …' chooses packages by parts of their names
# make test-e2e   whole systems: agents with real API servers, kills at every moment, emulated hosts, other projects' programs next to weft's; PKG=…; builds Kubernetes once (KUBE=no does not), and with MOBY_SOURCE a newer dockerd
# make test-load   make test while other programs want all processors: what fails then is wrong
# make cover   the statements that make test and make test-e2e reach together, of all packages (takes as long as both, and more)
# make test-upgrade   upgrade and roll back between the version before and today's, ROUNDS=10 times; what each step loses
# make test-race   the packages that hold locks, under the race detector (gcc; takes long, outside make test)
# make test-vm the kernel tests that this host's kernel cannot run, in a VM with a distribution's kernel
# make test-hostile   attackers in pods against a small cluster: nothing of theirs may arrive (root; docs/design/security.md)
# make truth-kubevirt   KubeVirt's own network code compared with weft's: what both make, say and refuse (root)
# make demo    a cluster of pods on this host, in a minute (root)
# make web     the page of weft ui from its sources, with npm's packages of its lock file
# make test-ui a browser goes through the page of weft ui in a live lab; pictures of it are in bin/ui (root)
# make lint    what the linter knows; the laws are tests (internal/archtest), and lint-lite needs nothing but Go
# make outliers   the types, packages and functions that are far bigger than the others, for a reader to review
# make generate   what is made from the types of api/v1alpha1: deep copies, the kinds' definitions (deploy/crds, deploy/crds.yaml), pkg/client; and the reference of kinds and commands
# make image   weft's container image, bin/weft-image.tar, for amd64 and arm64 (IMAGE_ARCHS), without Docker and the same bytes every time
# make docs    the documentation as static HTML with search, in bin/site
# make release   what a release consists of, in bin/release: static programs and image archives for amd64 and arm64, manifests, the Helm chart, checksums, a bill of materials
# make e2e     weft in a real Kubernetes of two nodes, which is built once, 10 to 20 minutes (root)
# make e2e-upstream   Kubernetes' own specs of [sig-network] there, and a table of what passes; FOCUS='… …' chooses (root)
# make e2e-kubevirt   a whole KubeVirt on weft in a real Kubernetes: VMs by its bindings, policy, live migration; its source is KUBEVIRT_SOURCE; it is built once, 10 to 30 minutes (root)
# make e2e-kubevirt-functional   KubeVirt's own functional tests of its network there, and a table of what passes; FOCUS='… …' chooses (root)
# make e2e-calico   Calico's own specs of its policies there, and a table of what passes; its source is CALICO_SOURCE; FOCUS='… …' chooses (root)
# make takeover   weft takes over a cluster in which Calico's own programs serve; they are built once, 10 to 30 minutes (root)
# make bench   weft compared with the reference plugins (root)

SHELL       := /bin/bash
GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOFLAGS_    := -trimpath -tags grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)'
PLUGINS     := bandwidth bridge dhcp dummy firewall flannel host-device host-local ipvlan loopback macvlan macvtap portmap ptp sbr static tap tuning vlan vrf weft-direct
CACHE       ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weft
AGENT_PLUGINS := calico calico-ipam weft whereabouts
PEER        := $(CACHE)/plugins-v1.9.1
FLANNEL     := $(CACHE)/flannel-v0.28.9
LINT        := $(CACHE)/golangci-lint-v2.15.0
BENCH_N     ?= 100
BENCH_FLAGS ?= --concurrency 1,8,32 --pods 10,250,1000

export CGO_ENABLED := 0
# Programs and tests are compiled alike, so that nothing is compiled twice.
export GOFLAGS := $(strip $(GOFLAGS) $(if $(findstring -trimpath,$(GOFLAGS)),,-trimpath))

# The image of a commit is the same bytes wherever it is built with the same Go.
IMAGE       ?= localhost/weft:dev
IMAGE_ARCHS ?= amd64 arm64
IMAGE_TIME  ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
IMAGE_DIR   ?= bin

.PHONY: all help build links image docs release test test-e2e test-load test-upgrade cover test-race test-vm test-hostile truth-kubevirt lint lint-lite outliers generate demo e2e e2e-kubevirt e2e-kubevirt-functional e2e-calico e2e-upstream takeover bench clean deps peers

all: build

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

build:
	$(GO) build $(GOFLAGS_) -o bin/ ./cmd/...
	$(GO) build $(GOFLAGS_) -o bin/bench-empty ./test/empty
	$(GO) build $(GOFLAGS_) -o bin/ ./test/guest-tools
	@ln -sfn weft bin/kubectl-weft
	@$(MAKE) --no-print-directory links

# A CNI binary directory next to the programs: a link for each plugin's name.
DIR ?= bin/cni
links:
	@mkdir -p $(DIR)
	@for p in $(PLUGINS); do ln -sfn ../weft-plugin $(DIR)/$$p; done
	@for p in weft-cni multus multus-shim $(AGENT_PLUGINS); do ln -sfn ../weft-cni $(DIR)/$$p; done

# weft-cni has no version to say, but two versions of it are never the same bytes.
image:
	@for arch in $(IMAGE_ARCHS); do \
		dir=$(IMAGE_DIR)/image/$$arch; mkdir -p $$dir && echo "make: programs of the image for $$arch" && \
		GOARCH=$$arch $(GO) build -buildvcs=false $(GOFLAGS_) -o $$dir/ ./cmd/weft ./cmd/weft-agent ./cmd/weft-controller ./cmd/weft-bgp ./cmd/weft-plugin ./cmd/cni-conformance && \
		GOARCH=$$arch $(GO) build -buildvcs=false -trimpath -ldflags '-s -w -buildid=$(VERSION)' -o $$dir/ ./cmd/weft-cni || exit 1; \
	done
	$(GO) run ./deploy/image -name $(IMAGE) -created $(IMAGE_TIME) $(foreach a,$(IMAGE_ARCHS),-programs $(a)=$(IMAGE_DIR)/image/$(a)) -o $(IMAGE_DIR)/weft-image.tar
	@echo "make: $(IMAGE) for $(IMAGE_ARCHS) is in $(IMAGE_DIR)/weft-image.tar; on every node: ctr -n k8s.io images import $(IMAGE_DIR)/weft-image.tar"

# The image for this host only.
.PHONY: image-here
image-here:
	@$(MAKE) --no-print-directory image IMAGE_ARCHS=$(shell $(GO) env GOARCH)

docs:
	@$(GO) run $(GOFLAGS_) ./deploy/site -o bin/site

release:
	@GO=$(GO) deploy/release.sh $(or $(RELEASE),bin/release)

deps:
	@test/deps.sh test

# The tests compare with the reference plugins and chain them, and run the programs that have just been built: test/run.sh. Which
# packages are in which suite says test/suites.sh.
test: ready
	@CACHE=$(CACHE) test/run.sh test

# Tests with an API server run the Kubernetes that is built for make e2e, once; KUBE=no does not build it.
KUBE ?= yes
test-e2e: ready
	@[ $(KUBE) = no ] || { test/deps.sh kube && test/kube/build.sh; } || echo "make: Kubernetes cannot be built here: tests that need an API server are skipped"
	@test/deps.sh docker || echo "make: dockerd cannot be installed here: its tests are skipped"
	@CACHE=$(CACHE) test/docker/build.sh || echo "make: SKIPPED: a newer dockerd than Debian's cannot be built here: say by MOBY_SOURCE where a repository of Moby's is"
	@CACHE=$(CACHE) test/run.sh e2e

# A step that loses a datagram or resets a connection fails (docs/tasks/upgrade.md).
ROUNDS ?= 10
test-upgrade: ready
	WEFT_UPGRADE_ROUNDS=$(ROUNDS) WEFT_PROGRAMS=$(CURDIR)/bin WEFT_EARLIER_DIR=$$(CACHE=$(CACHE) test/upgrade/build.sh --where) \
	$(GO) test -count=1 -v -timeout 60m ./test/upgrade

# The chart's alerts, dashboard and monitors, with promtool and the kinds of Grafana and the Prometheus operator.
.PHONY: test-alerts
test-alerts:
	@CACHE=$(CACHE) test/alerts.sh

test-load: ready
	@CACHE=$(CACHE) test/load.sh test/run.sh test

cover: ready
	@CACHE=$(CACHE) test/cover.sh

.PHONY: ready
ready: deps build
	@$(MAKE) --no-print-directory peers || echo "make: the reference plugins cannot be built here: tests that need them are skipped"
	@CACHE=$(CACHE) test/flannel/build.sh || echo "make: flannel's own flanneld cannot be built here: tests that need it are skipped"
	@CACHE=$(CACHE) test/upgrade/build.sh || echo "make: weft's own earlier programs cannot be built here: tests that take over from them are skipped"
	@bin/weft vm image >/dev/null || echo "make: no guest can be made here: tests that boot one are skipped"

# Every package of the product that imports sync or sync/atomic; RACE='./internal/x …' chooses. To its end, whatever fails.
RACEFLAGS   ?= -count=1 -p 1 -timeout 20m
RACE        ?= $(shell $(GO) list -f '{{$$p := .ImportPath}}{{range .Imports}}{{if eq . "sync" "sync/atomic"}}{{$$p}}{{"\n"}}{{end}}{{end}}' ./internal/... | grep -vE '/internal/(bench|conformance|nettest|apitest)(/|$$)' | sort -u)

test-race:
	@test/deps.sh race
	CGO_ENABLED=1 $(GO) test -race $(RACEFLAGS) $(RACE)

# After make test and make test-e2e it knows what those have skipped.
test-vm: build
	@test/vm/run.sh

# HOSTILE=… chooses attacks. A line for each row, what this kernel cannot run and where it runs, and a count. The worlds wait
# more than they work, so four of them are tried at once.
HOSTILE ?= .
test-hostile: build
	@test/deps.sh test
	@rm -f bin/skipped-hostile; touch bin/skipped-hostile; cd test/hostile && set -o pipefail; \
	WEFT_HOSTILE=1 WEFT_PROGRAMS=$(CURDIR)/bin WEFT_SKIPS=$(CURDIR)/bin/skipped-hostile \
	$(GO) test -count=1 -timeout 20m -parallel 4 -run '$(HOSTILE)' | tee $(CURDIR)/bin/hostile.log; code=$$?; \
	awk 'FILENAME ~ /skipped-hostile$$/{sub(/^[^ ]* /, ""); sub(/: kernel: /, ": "); print "hostile: SKIPPED: " $$0 "; make test-vm runs it"; s++; next} \
	  /^hostile: /{n++; if (/: kernel: /) k++; if (!/, arrived 0,/) a++} \
	  END{printf "hostile: %d rows, %d with an arrival, %d dropped in part or whole by the kernel itself, %d tests skipped\n", n, a, k, s}' \
	  $(CURDIR)/bin/hostile.log $(CURDIR)/bin/skipped-hostile; exit $$code

truth-kubevirt: build
	@test/deps.sh test
	@test/kubevirt/run.sh

peers: $(PEER)/.all

lint: lint-lite $(LINT)/golangci-lint
	$(LINT)/golangci-lint run ./...

lint-lite:
	@unformatted=$$(gofmt -l api cmd deploy examples internal pkg test); \
	[ -z "$$unformatted" ] || { echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; }
	@mkdir -p bin; mods=$$(git ls-files go.mod '*/go.mod' 2>/dev/null); for mod in $${mods:-go.mod tools/go.mod}; do \
		dir=$$(dirname $$mod); untidy=$$(cd $$dir && $(GO) mod tidy -diff 2>$(CURDIR)/bin/tidy.log); code=$$?; \
		if [ -n "$$untidy" ]; then echo "$$dir: go.mod or go.sum is not tidy (go mod tidy):"; echo "$$untidy"; exit 1; fi; \
		if [ $$code != 0 ]; then echo "make: SKIPPED: go mod tidy -diff in $$dir: a module that only tests of other modules need could not be had:"; tail -n 2 bin/tidy.log; fi; \
	done
	$(GO) vet ./...
	for mod in examples/backend test/nftbench; do (cd $$mod && $(GO) vet ./...) || exit 1; done
	$(GO) test -count=1 ./internal/archtest

outliers:
	@$(GO) test -count=1 -v -run 'TestOutliers$$' ./internal/archtest | sed -n 's/^ *outliers_test.go:[0-9]*: //p'

generate:
	GO=$(GO) tools/generate.sh .
	$(GO) test -count=1 -run 'TestRendered' ./deploy -update
	$(GO) run $(GOFLAGS_) ./deploy/reference
	$(GO) test -count=1 -run 'TestCommandReference' ./internal/cli -update

$(LINT)/golangci-lint:
	@echo "make: building golangci-lint v2.15.0 into $(LINT) (once)"
	GOBIN=$(LINT) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

demo:
	@test/demo.sh

.PHONY: web test-ui
web: bin/web/node_modules
	cd internal/web/page/build && $(GO) run . -packages $(CURDIR)/bin/web/node_modules

bin/web/node_modules: internal/web/page/package-lock.json
	@mkdir -p bin/web
	cp internal/web/page/package.json internal/web/page/package-lock.json internal/web/page/.npmrc bin/web/
	cd bin/web && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

test-ui: build
	@test/deps.sh ui
	$(GO) build $(GOFLAGS_) -o bin/ ./test/manynodes
	@$(MAKE) --no-print-directory bin/web/node_modules || echo "make: npm's packages cannot be fetched here: accessibility is not checked"
	cd test/ui && WEFT_PROGRAMS=$(CURDIR)/bin $(GO) test -count=1 -v -timeout 20m .

# RUN=… chooses scenarios, of which some run the reference plugins. Without weft: WEFT_E2E_CNI=reference.
RUN ?= .
e2e: image-here peers
	@test/deps.sh kube
	@test/kube/build.sh
	WEFT_E2E=1 $(GO) test -count=1 -v -timeout 60m -run '$(RUN)' ./test/kube/e2e

UPSTREAM := Granular.Checks network\].Services.should network\].DNS.should network\].HostPort
e2e-upstream: image-here peers
	@test/kube/upstream.sh $(foreach f,$(or $(FOCUS),$(UPSTREAM)),'$(f)')

# KUBEVIRT_SOURCE is a repository of KubeVirt's, a URL or a directory.
e2e-kubevirt: image-here build
	@test/deps.sh kube
	@test/deps.sh kubevirt
	@test/kube/build.sh
	bin/weft vm image --archive bin/weft-guest.tar
	@if CACHE=$(CACHE) test/kube/kubevirt/build.sh; then \
	  CACHE=$(CACHE) WEFT_KUBEVIRT_DIR=$$(CACHE=$(CACHE) test/kube/kubevirt/build.sh --where) \
	  WEFT_MULTUS=$$(CACHE=$(CACHE) test/kube/multus.sh) $(GO) test -count=1 -v -timeout 100m -run '$(if $(RUN:.=),^TestKubeVirt$$/$(RUN),^TestKubeVirt)' ./test/kube/e2e; \
	else echo "make: SKIPPED: KubeVirt cannot be built here: say by KUBEVIRT_SOURCE where its repository is"; fi

e2e-kubevirt-functional: image-here
	@test/deps.sh kube
	@test/deps.sh kubevirt
	@test/kube/build.sh
	@if CACHE=$(CACHE) test/kube/kubevirt/build.sh; then CACHE=$(CACHE) test/kube/kubevirt/functional/run.sh $(foreach f,$(FOCUS),'$(f)'); \
	else echo "make: SKIPPED: KubeVirt cannot be built here: say by KUBEVIRT_SOURCE where its repository is"; fi

# CALICO_SOURCE is a repository of Calico's, a URL or a directory.
e2e-calico: image-here
	@CACHE=$(CACHE) test/calico/e2e/run.sh $(foreach f,$(FOCUS),'$(f)')

takeover:
	@test/deps.sh test
	@test/kube/build.sh
	@if CACHE=$(CACHE) test/calico/build.sh; then \
	  WEFT_CALICO_DIR=$(CACHE)/calico-v3.32.1 $(GO) test -count=1 -v -timeout 20m ./test/calico; \
	else echo "make: SKIPPED: Calico's own programs cannot be built here: say by CALICO_SOURCE where its repository is"; fi

bench: build peers
	@test/deps.sh bench
	@for chain in bridge4 ptp4 bridge ptp pod; do \
	  debian=$$(test -x /usr/lib/cni/bridge && echo --peer-bin-dir debian=/usr/lib/cni); \
	  bin/weft bench cni --chain test/chains/$$chain.conflist --peer-bin-dir plugins-v1.9.1=$(PEER) $$debian -n $(BENCH_N) $(BENCH_FLAGS) || exit 1; \
	done
	@bin/weft bench networks --chain test/chains/bridge4.conflist --peer-bin-dir plugins-v1.9.1=$(PEER) -n $(BENCH_N)
	@bin/weft bench networks --chain test/chains/pod.conflist --networks 0 --peer-bin-dir plugins-v1.9.1=$(PEER) -n $(BENCH_N)
	@bin/weft bench shim

$(PEER)/.all:
	@echo "make: building the reference plugins v1.9.1 into $(PEER) (once)"
	@mkdir -p $(PEER)
	GOBIN=$(PEER) $(GO) install github.com/containernetworking/plugins/plugins/main/...@v1.9.1 \
	  github.com/containernetworking/plugins/plugins/meta/...@v1.9.1 github.com/containernetworking/plugins/plugins/ipam/...@v1.9.1
	@touch $@

clean:
	rm -rf bin
