// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// maxNamed is how many known names an error lists.
const maxNamed = 8

// similar returns a hint with the known name that is most similar to an unknown one, or some of those that are known.
func similar(name string, known []string) string {
	if near := cni.Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	if len(known) > 0 {
		return "known are " + strings.Join(known[:min(len(known), maxNamed)], ", ")
	}
	return "there is none"
}

// checkReason returns an error about a part of a reason that no flow can have.
func checkReason(part string) error {
	known := append(flow.DropReasons(), flow.ReasonPoliciesUnknown, flow.ReasonNotAllowed, flow.ReasonHostEndpoint)
	// A reason of the kernel's may be followed by the interface: IP_RPFILTER at eth0.
	reason, _, _ := strings.Cut(" "+strings.ToLower(part)+" ", " at ")
	reason = strings.TrimSpace(reason)
	// The sentence about a host endpoint contains its name.
	if strings.Contains(reason, flow.ReasonHostEndpoint) || slices.ContainsFunc(known, func(k string) bool {
		return strings.Contains(strings.ToLower(k), reason)
	}) {
		return nil
	}
	similar := slices.Clone(known)
	for _, k := range known {
		if _, rest, ok := strings.Cut(k, "_"); ok { // a part of IP_RPFILTER may be meant
			similar = append(similar, rest)
		}
	}
	hint := "known are " + model.OneOf(known)
	switch near := cni.Nearest(reason, similar); {
	case near != "":
		hint = "did you mean " + near + "? " + hint
	case !strings.ContainsAny(part, " \t") && strings.ContainsAny(part, "0123456789.-"): // eth0: no reason looks like that
		return nil
	default:
		hint = fmt.Sprintf("%s; an interface is %q", hint, "at "+part)
	}
	return model.Errorf(model.CodeInvalidConf, hint, "reason %q is not known", part)
}

// checkSelectors returns an error about the first selector of labels that selects no pod of the cluster; all are the labels
// of pods.
func checkSelectors(selectors []string, all []map[string]string) error {
	for _, s := range selectors {
		if slices.ContainsFunc(all, func(labels map[string]string) bool { return flow.Selects(s, labels) }) {
			continue
		}
		missing, have := flow.MissingLabel(s, all)
		if missing == "" {
			return model.Errorf(model.CodeInvalidConf, "pods have each of the labels, but none has all: leave one out",
				"label %q: it selects no pod of the cluster", s)
		}
		return model.Errorf(model.CodeInvalidConf, similar(missing, have), "label %q: no pod of the cluster has %s", s, missing)
	}
	return nil
}
