// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

func summaryText(out io.Writer, s policy.Summary) {
	if !s.Known {
		fmt.Fprintln(out, "policies are not known yet: the kernel is as it was")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer func() { _ = w.Flush() }()
	fmt.Fprintf(w, "node %s: %d policies, %d interfaces\n", s.Node, len(s.Policies), s.Interfaces)
	for _, p := range s.Policies {
		state := "understood"
		if p.Faults != "" {
			state = "not understood in full: " + p.Faults
		}
		if p.SelectsNoPods {
			state += "; selects no pods"
		}
		fmt.Fprintf(w, "%s\t%s\n", p.PolicyKey, state)
	}
	for _, d := range s.Denied {
		fmt.Fprintf(w, "denied by %s\t%d packets, %d bytes\n", d.By, d.Packets, d.Bytes)
	}
}

func viewText(w io.Writer, v compiled.View) {
	if v.Note != "" {
		fmt.Fprintf(w, "pod %s: everything is allowed: %s\n", v.Pod, v.Note)
		return
	}
	where := "on another node, which judges it"
	if v.Here {
		where = "on this node"
	}
	fmt.Fprintf(w, "pod %s, %s\n", v.Pod, where)
	for _, i := range v.Interfaces {
		name := i.IfName
		if i.Network != "" {
			name += " of " + i.Network
		}
		fmt.Fprintf(w, "interface %s %s%s\n", name, words(i.Addrs), at(i))
		judgedText(w, "ingress", i.Ingress)
		judgedText(w, "egress", i.Egress)
	}
}

// at says where policies are enforced for an interface, and what that place cannot hold.
func at(e compiled.Interface) string {
	switch {
	case e.Point == model.PointPort:
		return ", enforced at bridge port " + e.HostLink
	case e.HostLink != "":
		return ", enforced at " + e.HostLink
	case e.Point == model.PointTap:
		return ", enforced at the macvtap"
	case e.Point == model.PointDevice:
		return ", a machine's own device " + e.Device + ": closed where a policy selects it"
	case e.Point == model.PointPod:
		return ", enforced in the pod, not against its own processes with NET_RAW or NET_ADMIN: their sources and what they send are open (docs/security.md)"
	}
	return ""
}

func judgedText(w io.Writer, direction string, j compiled.Judged) {
	switch {
	case len(j.Selected) == 0 && !j.Isolated:
		fmt.Fprintf(w, "  %s: no policy, everything passes\n", direction)
		return
	case j.Isolated:
		fmt.Fprintf(w, "  %s: isolated by %s\n", direction, words(j.Selected))
	default:
		fmt.Fprintf(w, "  %s: asked of %s\n", direction, words(j.Selected))
	}
	for _, r := range j.Rules {
		by := r.Policy.String()
		if len(r.Together) > 0 {
			by = words(r.Together)
		}
		fmt.Fprintf(w, "    %s\n      %s", by, r.Text)
		for _, name := range slices.Sorted(maps.Keys(r.Sets)) {
			fmt.Fprintf(w, "  [@%s: %d]", name, r.Sets[name])
		}
		fmt.Fprintln(w)
	}
	if j.Isolated {
		fmt.Fprintln(w, "    everything else is denied")
	}
}

// whyText prints what was asked about, from and to, where no policy exists, and else each pair of their addresses.
func whyText(w io.Writer, from, to string, all []compiled.Answer) {
	for _, a := range all {
		if a.Note != "" {
			fmt.Fprintf(w, "%s > %s: allowed: %s\n", from, to, a.Note)
			continue
		}
		verdict := "allowed"
		if !a.Allowed {
			verdict = "denied"
		}
		what := strings.ToLower(string(a.Flow.Protocol))
		if what == "" {
			what = "anything without ports"
		} else {
			what += " " + strconv.Itoa(int(a.Flow.DstPort))
		}
		fmt.Fprintf(w, "%s > %s %s: %s\n", a.Flow.Src, a.Flow.Dst, what, verdict)
		for _, s := range a.Sides {
			sideText(w, s)
		}
	}
}

func sideText(w io.Writer, s compiled.Side) {
	verdict := "allowed"
	if !s.Allowed {
		verdict = "denied"
	}
	where := "by this node"
	if !s.Here {
		where = "by its own node"
	}
	fmt.Fprintf(w, "  %s of %s: %s", s.Direction, s.Pod, verdict)
	switch {
	case len(s.Selected) == 0:
		fmt.Fprintln(w, ", no policy selects it")
		return
	case len(s.Decided) == 0:
		fmt.Fprintf(w, " %s, no rule of %s decides\n", where, words(s.Selected))
		return
	case s.Rule >= 0:
		fmt.Fprintf(w, " %s, %s rule %d\n", where, words(s.Decided), s.Rule)
	default:
		fmt.Fprintf(w, " %s, no rule of %s allows it\n", where, words(s.Decided))
	}
	if s.Text != "" {
		fmt.Fprintf(w, "    %s: %s\n", s.Chain, s.Text)
	}
	if s.Element != "" {
		fmt.Fprintf(w, "    element %s%s\n", s.Element, in(s.Set))
	}
}

func in(set string) string {
	if set == "" {
		return ""
	}
	return " of @" + set
}

// words are things in a row.
func words[T fmt.Stringer](all []T) string {
	out := make([]string, 0, len(all))
	for _, x := range all {
		out = append(out, x.String())
	}
	return strings.Join(out, ", ")
}
