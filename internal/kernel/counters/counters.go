// SPDX-License-Identifier: Apache-2.0

// Package counters reads the kernel's counters of packets that it lost, in a namespace: those of its protocols (the MIBs of
// /proc/net/snmp, snmp6 and netstat) and of its interfaces.
package counters

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/netns"
)

// Counter is a counter that has risen. Name is as nstat and ip -s link have it: "TcpExtIPReversePathFilter", or
// "eth0 rx dropped".
type Counter struct {
	Name string `json:"name"`
	By   uint64 `json:"by"`
}

// Values are counters by their names.
type Values map[string]uint64

// losses are words of the names of counters that count lost packets. Resets and port unreachables are refusals, which the
// sender gets as an answer.
func losses() []string {
	return []string{
		"Drop", "Discard", "Err", "NoRoutes", "Fails", "TooBig", "Truncated", "Overflow", "ReversePathFilter", "NoPorts",
		"NoMem", "UnknownProtos", "QFull",
	}
}

// Read reads the counters of a namespace; nil is the process's own. A kernel without IPv6 has none of it.
func Read(ns *netns.NS) (Values, error) {
	out := Values{}
	read := func() error {
		for _, f := range []struct {
			name  string
			parse func(Values, string)
		}{{"snmp", pairs}, {"netstat", pairs}, {"snmp6", lines}, {"dev", devices}} {
			text, err := os.ReadFile("/proc/thread-self/net/" + f.name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			f.parse(out, string(text))
		}
		return nil
	}
	if ns == nil {
		return out, read()
	}
	return out, ns.Do(read)
}

// Risen returns the counters that are greater than before, sorted by name.
func (v Values) Risen(before Values) (out []Counter) {
	for name, n := range v {
		if n > before[name] {
			out = append(out, Counter{name, n - before[name]})
		}
	}
	slices.SortFunc(out, func(a, b Counter) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// add adds a counter if it counts lost packets.
func (v Values) add(name, text string) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil && slices.ContainsFunc(losses(), func(word string) bool { return strings.Contains(name, word) }) {
		v[name] = n
	}
}

// pairs parses a line of names and a line of values for each protocol.
func pairs(v Values, text string) {
	all := strings.Split(text, "\n")
	for i := 0; i+1 < len(all); i += 2 {
		names, values := strings.Fields(all[i]), strings.Fields(all[i+1])
		if len(names) != len(values) || len(names) == 0 {
			continue
		}
		protocol := strings.TrimSuffix(names[0], ":")
		for j, name := range names[1:] {
			v.add(protocol+name, values[j+1])
		}
	}
}

// lines parses a name and a value in each line.
func lines(v Values, text string) {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) == 2 {
			v.add(words[0], words[1])
		}
	}
}

// devices parses the table of interfaces.
func devices(v Values, text string) {
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if !ok || len(words) < 12 {
			continue
		}
		name = strings.TrimSpace(name)
		for i, counter := range map[int]string{2: "rx errors", 3: "rx dropped", 10: "tx errors", 11: "tx dropped"} {
			if n, err := strconv.ParseUint(words[i], 10, 64); err == nil {
				v[name+" "+counter] = n
			}
		}
	}
}
