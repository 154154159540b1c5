// SPDX-License-Identifier: Apache-2.0

package conformance

import "slices"

// itemCheck checks an item on a subject.
type itemCheck struct {
	item int
	// notApplicable returns why the item does not apply to a subject; "" if it does.
	notApplicable func(s *subject) string
	// since is the version of the specification that introduced the verb.
	since string
	// noKernelNeeds is set if the check does not require the kernel features of the subject.
	noKernelNeeds bool
	run           func(w *world) verdict
}

// itemChecks returns all checks of plugins.
func itemChecks() []itemCheck {
	all := slices.Concat(protocolChecks(), addChecks(), resultChecks(), delChecks(), checkChecks(), statusChecks(),
		gcChecks(), delegateChecks())
	slices.SortStableFunc(all, func(a, b itemCheck) int { return a.item - b.item })
	return all
}

// Functions for itemCheck.notApplicable.

func onlyFor(why string, roles ...role) func(*subject) string {
	return func(s *subject) string {
		if slices.Contains(roles, s.role) {
			return ""
		}
		return why
	}
}

func onlyDelegating(s *subject) string {
	if !s.delegates {
		return "it has no delegates"
	}
	return ""
}

// Verdicts that many checks share.

// aborted is the verdict if a check cannot be completed: an error of the kit, or an ADD that fails.
func aborted(err error) verdict { return fail("check aborted: %v", err) }

// passUnless returns a pass, or a failure if err is not nil.
func passUnless(err error) verdict {
	if err != nil {
		return fail("%v", err)
	}
	return pass()
}
