// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// law is a rule for the source tree, with its reason.
type law struct {
	name, reason string
	check        func(tree []*source) []violation
}

func laws() []law {
	return []law{
		{
			"plan",
			"a plan can be replayed from a bug report: it knows model, state and the pure part of the standard library, " +
				"no files, no clock, no network, no logging", checkPlan,
		},
		{"kernel", "a driver that knows pods gets special cases for them", checkKernel},
		{
			"lang", "the language of nftables is text and numbers: it can be tested, fuzzed and used without a kernel",
			checkLang,
		},
		{"model", "model and state are data types without behavior", checkModel},
		{
			"kubernetes",
			"only packages at the border use Kubernetes' types: the others use model, and weft works without an API server",
			checkKubernetes,
		},
		{"netlink", "each kernel API is used in one package, which handles its pitfalls for all others", checkNetlink},
		{
			"setns",
			"a thread left in the wrong namespace is the worst bug a network daemon can have: only netns enters namespaces",
			checkSetns,
		},
		{"init", "importing a package has no effect: only what main builds runs", checkInit},
		{
			"global",
			"global state is shared by all users in a process: tests, attachments and nodes of a lab would interfere",
			checkGlobal,
		},
		{"exit", "only main exits the process, so that deferred cleanup runs", checkExit},
		{"clock", "clock and randomness are arguments, so that tests are deterministic", checkClock},
		{
			"rename",
			"the durability of a file is decided in one package, not by each writer",
			checkRename,
		},
		{
			"flock",
			"waiting for a lock without a context hangs the caller, and a lock file may be removed meanwhile: one package handles both", checkFlock,
		},
		{"header", "every file has its license, every package a comment", checkHeader},
		{"names", "a package without a subject collects unrelated code", checkNames},
	}
}

// TestLaws checks the whole tree.
func TestLaws(t *testing.T) {
	tree := sources(t)
	for _, l := range laws() {
		t.Run(l.name, func(t *testing.T) {
			for _, b := range l.check(tree) {
				t.Errorf("%s\n\tthe law: %s", b, l.reason)
			}
		})
	}
}

// TestLawsFind checks that each law finds exactly the violations in its fixture.
func TestLawsFind(t *testing.T) {
	for _, l := range laws() {
		t.Run(l.name, func(t *testing.T) {
			tree, want := fixture(t, filepath.Join("testdata", l.name+".txtar"))
			if len(want) == 0 {
				t.Fatal("the fixture wants no violation")
			}
			got := l.check(tree)
			for _, w := range want {
				i := slices.IndexFunc(got, func(b violation) bool { return strings.Contains(b.String(), w) })
				if i < 0 {
					t.Errorf("not found: %s", w)
					continue
				}
				got = slices.Delete(got, i, i+1)
			}
			for _, b := range got {
				t.Errorf("unexpected: %s", b)
			}
		})
	}
}
