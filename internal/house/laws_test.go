// SPDX-License-Identifier: Apache-2.0

package house

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// law is a rule of the house and the reason for it.
type law struct {
	name, reason string
	check        func(tree []*source) []breach
}

func laws() []law {
	return []law{
		{
			"plan",
			"a plan can be replayed from a bug report: it knows model, state and the pure part of the standard library, " +
				"no files, no clock, no network, no logging", checkPlan,
		},
		{"kernel", "a driver that knows what a pod is grows an if for it", checkKernel},
		{
			"lang", "the language of nftables is text and numbers: it can be tested, fuzzed and used without a kernel",
			checkLang,
		},
		{"words", "model and state are words; words have no machinery", checkWords},
		{
			"kubernetes",
			"only the rooms at the border speak Kubernetes: everything below them speaks model, and weft works without an API server",
			checkKubernetes,
		},
		{"netlink", "the kernel is spoken to in one place each, so that nobody else needs to know its traps", checkNetlink},
		{
			"setns",
			"a thread left in the wrong namespace is the worst bug a network daemon can have: only netns enters namespaces",
			checkSetns,
		},
		{"init", "importing a package does nothing: what runs is what main builds", checkInit},
		{
			"global",
			"state that belongs to nobody is shared by everybody: tests, attachments and nodes of a lab would meet in it",
			checkGlobal,
		},
		{"exit", "only main ends the process, so that everything that was begun is undone", checkExit},
		{"clock", "clock and randomness are handed in: what cannot be repeated cannot be tested", checkClock},
		{
			"rename",
			"whether a file survives a killed process or a power loss is said in one place, and not decided anew by each writer",
			checkRename,
		},
		{
			"flock",
			"a lock that is waited for without a context hangs its caller, and who removes a lock's file must be noticed: that is written once", checkFlock,
		},
		{"header", "every file says its license, every package what it is", checkHeader},
		{"names", "a drawer for odds and ends is where design goes to die", checkNames},
	}
}

// TestLaws checks the whole tree.
func TestLaws(t *testing.T) {
	tree := whole(t)
	for _, l := range laws() {
		t.Run(l.name, func(t *testing.T) {
			for _, b := range l.check(tree) {
				t.Errorf("%s\n\tthe law: %s", b, l.reason)
			}
		})
	}
}

// TestLawsSee checks each law against a small house that breaks it, and that it says so where it is broken and nowhere
// else.
func TestLawsSee(t *testing.T) {
	for _, l := range laws() {
		t.Run(l.name, func(t *testing.T) {
			tree, want := small(t, filepath.Join("testdata", l.name+".txtar"))
			if len(want) == 0 {
				t.Fatal("the small house wants no breach")
			}
			got := l.check(tree)
			for _, w := range want {
				i := slices.IndexFunc(got, func(b breach) bool { return strings.Contains(b.String(), w) })
				if i < 0 {
					t.Errorf("not found: %s", w)
					continue
				}
				got = slices.Delete(got, i, i+1)
			}
			for _, b := range got {
				t.Errorf("found though it is allowed: %s", b)
			}
		})
	}
}
