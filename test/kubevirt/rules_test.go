// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	counted  = regexp.MustCompile(` ?counter packets \d+ bytes \d+`)
	anySet   = regexp.MustCompile(`\{ ([^{}]*) \}`)
	anyNamed = regexp.MustCompile(`@(\w+)`)
	narrow   = regexp.MustCompile(`\b(\d+)-(\d+)\b`)
	protoSet = regexp.MustCompile(`meta l4proto \. th dport (tcp|udp) \. (\S+)`)
)

// normalizeRules converts nft's listing to a list of single rules: sets are expanded to one rule per element, and order
// is kept only between returns and other verdicts. The NAT tables get the same name. The guard's table exists only in
// weft.
func normalizeRules(listing string) []string {
	var out []string
	for table := range strings.SplitSeq(listing, "\ntable ") {
		head, body, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(table), "table "), " {\n")
		family, name, _ := strings.Cut(head, " ")
		if strings.HasPrefix(name, "weft_guard_") || name == "" {
			continue
		}
		if name == "nat" || name == "weft_vm" {
			name = "nat"
		}
		sets := map[string]string{}
		var chains []string
		for part := range strings.SplitSeq(body, "\n\n") {
			kind, rest, _ := strings.Cut(strings.TrimSpace(part), " ")
			if kind != "set" {
				chains = append(chains, rest)
				continue
			}
			if found := regexp.MustCompile(`(?s)^(\w+).*elements = \{ (.*?) \}`).FindStringSubmatch(rest); found != nil {
				sets[found[1]] = strings.Join(strings.Fields(found[2]), " ")
			}
		}
		for _, chain := range chains {
			title, text, _ := strings.Cut(chain, " {\n")
			stage, was := 0, ""
			for line := range strings.Lines(text) {
				line = strings.TrimSpace(counted.ReplaceAllString(line, ""))
				if line == "}" || line == "" {
					continue
				}
				line = anyNamed.ReplaceAllStringFunc(line, func(s string) string { return "{ " + sets[s[1:]] + " }" })
				is := "does"
				if strings.HasSuffix(line, " return") {
					is = "goes back"
				}
				if is != was {
					stage, was = stage+1, is
				}
				for _, one := range expandSets(line) {
					out = append(out, fmt.Sprintf("%s %s %s %d: %s", family, name, title, stage, one))
				}
			}
			if text == "" || strings.Trim(text, "}\n\t ") == "" {
				out = append(out, fmt.Sprintf("%s %s %s", family, name, title))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// expandSets expands a rule to one for each element of its sets.
func expandSets(rule string) []string {
	found := anySet.FindStringSubmatchIndex(rule)
	if found == nil {
		rule = narrow.ReplaceAllStringFunc(rule, func(s string) string {
			if first, last, _ := strings.Cut(s, "-"); first == last {
				return first
			}
			return s
		})
		return []string{protoSet.ReplaceAllString(rule, "$1 dport $2")}
	}
	all := map[string]bool{}
	for element := range strings.SplitSeq(rule[found[2]:found[3]], ",") {
		for _, one := range expandSets(rule[:found[0]] + strings.TrimSpace(element) + rule[found[1]:]) {
			all[one] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// loopbackRules matches KubeVirt's rules for ::1, which weft omits: they have no effect, because the kernel drops
// packets from or to ::1 on a link.
func loopbackRules(rule string) bool {
	for _, chain := range []string{"input", "output", "KUBEVIRT_POSTINBOUND"} {
		if strings.HasPrefix(rule, "ip6 nat "+chain) {
			return true
		}
	}
	return rule == `ip6 nat postrouting 1: oifname "k6t-eth0" jump KUBEVIRT_POSTINBOUND`
}
