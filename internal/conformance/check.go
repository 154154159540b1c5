// SPDX-License-Identifier: Apache-2.0

package conformance

import "slices"

// judgment is how an item is judged on a subject.
type judgment struct {
	item int
	// without tells why the item does not apply to a subject; "" when it does.
	without func(s *subject) string
	// since is the version of the specification that the verb came with.
	since string
	// bare: it can be judged without the kernel having what the subject needs.
	bare bool
	run  func(w *world) verdict
}

// judgments are all items that are judged on a directory's plugins.
func judgments() []judgment {
	all := slices.Concat(protocolChecks(), addChecks(), resultChecks(), delChecks(), checkChecks(), statusChecks(),
		gcChecks(), delegateChecks())
	slices.SortStableFunc(all, func(a, b judgment) int { return a.item - b.item })
	return all
}

// The reasons for which an item does not apply.

func only(why string, roles ...role) func(*subject) string {
	return func(s *subject) string {
		if slices.Contains(roles, s.role) {
			return ""
		}
		return why
	}
}

func delegating(s *subject) string {
	if !s.delegates {
		return "it has no delegates"
	}
	return ""
}

// Words of the verdicts that many checks share.

// broken is the verdict for what keeps a check from being made: the kit's own trouble, or an ADD that fails.
func broken(err error) verdict { return fail("not judged further: %v", err) }

// wanted is a pass, or a failure with what was seen.
func wanted(err error) verdict {
	if err != nil {
		return fail("%v", err)
	}
	return pass()
}
