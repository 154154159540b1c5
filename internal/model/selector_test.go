// SPDX-License-Identifier: Apache-2.0

package model

import "testing"

func TestSelector(t *testing.T) {
	labels := map[string]string{"app": "web", "tier": "", "x/y": "1"}
	need := func(key string, op SelectorOp, values ...string) Selector {
		return Selector{Requirements: []SelectorRequirement{{key, op, values}}}
	}
	for _, c := range []struct {
		s    Selector
		want bool
		text string
	}{
		{Selector{}, true, "all"},
		{Selector{Labels: map[string]string{"app": "web"}}, true, "app=web"},
		{Selector{Labels: map[string]string{"app": "web", "tier": "a"}}, false, "app=web,tier=a"},
		{Selector{Labels: map[string]string{"none": ""}}, false, `none=""`},
		{Selector{Labels: map[string]string{"tier": ""}}, true, `tier=""`},
		{need("app", SelectIn, "web", "db", "web"), true, "app in (db,web)"},
		{need("none", SelectIn, ""), false, `none in ("")`},
		{need("app", SelectNotIn, "web"), false, "app notin (web)"},
		{need("none", SelectNotIn, "web"), true, "none notin (web)"},
		{need("x/y", SelectExists), true, "x/y"},
		{need("none", SelectDoesNotExist), true, "!none"},
		{need("app", SelectDoesNotExist), false, "!app"},
		{need("app", "Is", "web"), false, "app Is (web)"},
		{need("a,b=c", SelectExists), false, `"a,b=c"`},
	} {
		if got := c.s.Matches(labels); got != c.want || c.s.String() != c.text {
			t.Errorf("%+v: %v as %q, want %v as %q", c.s, got, c.s, c.want, c.text)
		}
	}
}
