// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plural"
)

// summaryText prints tables of the policies, and of what they denied.
func summaryText(out io.Writer, output *printer.Format, s policy.Summary) error {
	policies := printer.Table{Header: []string{"POLICY", "STATE"}}
	for _, p := range s.Policies {
		state := "valid"
		if p.Unsupported != "" {
			state = "partly unsupported: " + p.Unsupported
		}
		if p.SelectsNoPods {
			state += "; selects no pods"
		}
		name := p.PolicyKey.String()
		policies.Row(name, name, state)
	}
	denied := printer.Table{Header: []string{"DENIED BY", "PACKETS", "BYTES"}}
	for _, d := range s.Denied {
		denied.Row("", d.By, strconv.FormatUint(d.Packets, 10), strconv.FormatUint(d.Bytes, 10))
	}
	if err := output.Tables(out, policies, hostEndpoints(s.HostEndpoints), denied); err != nil || output.Is(printer.Name) {
		return err
	}
	if !s.Known {
		fmt.Fprintln(out, "policies are not synced yet: the rules in the kernel are not changed")
	}
	_, err := fmt.Fprintf(out, "node %s: %s, %s\n", s.Node, plural.Count(len(s.Policies), "policy", "policies"),
		plural.Count(s.Interfaces, "interface", "interfaces"))
	return err
}

// hostEndpoints returns a row for each stage and direction of host endpoints at which policies act.
func hostEndpoints(all []compiled.HostEndpointView) printer.Table {
	t := printer.Table{Header: []string{"HOST ENDPOINT", "INTERFACE", "PACKETS", "POLICIES", "DEFAULT", "STATE"}}
	for _, h := range all {
		state := "valid"
		switch {
		case len(h.Faults) > 0 && len(h.Stages) == 0:
			state = "not enforced: " + strings.Join(h.Faults, "; ")
		case len(h.Faults) > 0:
			state = "partly unsupported: " + strings.Join(h.Faults, "; ")
		}
		if len(h.Stages) == 0 {
			t.Row("", h.Name, "", "", "", "", state)
		}
		for _, s := range h.Stages {
			t.Row("", h.Name, h.Interface, s.Stage+" "+s.Direction, list(s.Policies), string(s.Default)+" ("+s.Why+")", state)
			state = "" // once
		}
	}
	return t
}

// selecting returns the policies that select a pod, each once.
func selecting(v compiled.View) printer.Table {
	t := printer.Table{Header: []string{"POLICY"}}
	seen := map[string]bool{}
	for _, i := range v.Interfaces {
		for _, p := range slices.Concat(i.Ingress.Selected, i.Egress.Selected) {
			if name := p.String(); !seen[name] {
				seen[name] = true
				t.Row(name, name)
			}
		}
	}
	return t
}

func viewText(w io.Writer, v compiled.View) {
	if v.Note != "" {
		fmt.Fprintf(w, "pod %s: all traffic is allowed: %s\n", v.Pod, v.Note)
		return
	}
	where := "on another node, which enforces it"
	if v.Local {
		where = "on this node"
	}
	fmt.Fprintf(w, "pod %s, %s\n", v.Pod, where)
	for _, i := range v.Interfaces {
		name := i.IfName
		if i.Network != "" {
			name += " of " + i.Network
		}
		fmt.Fprintf(w, "interface %s %s%s\n", name, list(i.Addrs), enforcementPoint(i))
		directionText(w, "ingress", i.Ingress)
		directionText(w, "egress", i.Egress)
	}
}

// enforcementPoint describes where policies are enforced for an interface, and which traffic that point does not cover.
func enforcementPoint(e compiled.Interface) string {
	switch {
	case e.Point == model.PointPort:
		return ", enforced at bridge port " + e.HostLink
	case e.HostLink != "":
		return ", enforced at " + e.HostLink
	case e.Point == model.PointTap:
		return ", enforced at the macvtap"
	case e.Point == model.PointDevice:
		return ", the VM's own device " + e.Device + ": all traffic is denied if a policy selects it"
	case e.Point == model.PointPod:
		return ", enforced in the pod's namespace: processes with NET_RAW or NET_ADMIN there can bypass egress rules and the source guard (docs/design/security.md)"
	}
	return ""
}

func directionText(w io.Writer, direction string, d compiled.DirectionView) {
	switch {
	case len(d.Selected) == 0 && !d.Isolated:
		fmt.Fprintf(w, "  %s: no policy selects the pod: all traffic is allowed\n", direction)
		return
	case d.Isolated:
		fmt.Fprintf(w, "  %s: isolated by %s\n", direction, list(d.Selected))
	default:
		fmt.Fprintf(w, "  %s: selected by %s\n", direction, list(d.Selected))
	}
	for _, r := range d.Rules {
		by := r.Policy.String()
		if len(r.Merged) > 0 {
			by = list(r.Merged)
		}
		fmt.Fprintf(w, "    %s\n      %s", by, r.Text)
		for _, name := range slices.Sorted(maps.Keys(r.Sets)) {
			fmt.Fprintf(w, "  [@%s: %d]", name, r.Sets[name])
		}
		fmt.Fprintln(w)
	}
	if d.Isolated {
		fmt.Fprintln(w, "    all other traffic is denied")
	}
}

// whyText prints the verdict for each pair of addresses or, if no policy exists, one for from and to.
func whyText(w io.Writer, from, to string, all []compiled.Answer) {
	for _, a := range all {
		if a.Note != "" {
			fmt.Fprintf(w, "%s > %s: allowed: %s\n", from, to, a.Note)
			continue
		}
		verdict := "allowed"
		switch {
		case len(a.Unknown) > 0:
			verdict = "not known"
		case !a.Allowed:
			verdict = "denied"
		}
		what := strings.ToLower(string(a.Flow.Protocol))
		if what == "" {
			what = "traffic without ports"
		} else {
			what += " " + strconv.Itoa(int(a.Flow.DstPort))
		}
		fmt.Fprintf(w, "%s > %s %s: %s\n", a.Flow.Src, a.Flow.Dst, what, verdict)
		for _, s := range a.Sides {
			sideText(w, s)
		}
		for _, why := range a.Unknown {
			fmt.Fprintf(w, "  %s\n", why)
		}
	}
}

func sideText(w io.Writer, s compiled.Side) {
	verdict := "allowed"
	if !s.Allowed {
		verdict = "denied"
	}
	where := "on this node"
	if !s.Local {
		where = "on the pod's node"
	}
	of := s.Pod.String()
	switch {
	case s.HostEndpoint != "":
		if of = "host endpoint " + s.HostEndpoint; !s.Local {
			where = "on its node"
		}
	case s.Pod.Name == "": // packets of the node's pods to it
		of = "the node"
	}
	fmt.Fprintf(w, "  %s of %s: %s", s.Direction, of, verdict)
	switch {
	case s.HostEndpoint != "" && s.Allowed && len(s.Decided) == 0 && s.Text != "":
		fmt.Fprintf(w, ", %s: %s\n", s.Chain, s.Text)
		return
	case s.Pod.Name == "" && len(s.Decided) > 0 && s.Rule < 0:
		fmt.Fprintf(w, " by %s: no rule allows it\n", list(s.Decided))
		return
	case s.Pod.Name == "" && len(s.Selected) == 0:
		fmt.Fprintln(w, ", no policy selects it")
		return
	case len(s.Selected) == 0:
		fmt.Fprintln(w, ", no policy selects the pod")
		return
	case len(s.Decided) == 0:
		fmt.Fprintf(w, " %s, no rule of %s matches\n", where, list(s.Selected))
		return
	case s.Rule >= 0:
		fmt.Fprintf(w, " %s, %s rule %d\n", where, list(s.Decided), s.Rule)
	default:
		fmt.Fprintf(w, " %s, no rule of %s allows it\n", where, list(s.Decided))
	}
	if s.Text != "" {
		fmt.Fprintf(w, "    %s: %s\n", s.Chain, s.Text)
	}
	if s.Element != "" {
		fmt.Fprintf(w, "    element %s%s\n", s.Element, ofSet(s.Set))
	}
}

func ofSet(set string) string {
	if set == "" {
		return ""
	}
	return " of @" + set
}

// list joins values with commas.
func list[T fmt.Stringer](all []T) string {
	out := make([]string, 0, len(all))
	for _, x := range all {
		out = append(out, x.String())
	}
	return strings.Join(out, ", ")
}
