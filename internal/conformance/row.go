// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"regexp"
)

// Outcome is what a check has found.
type Outcome string

// The outcomes.
const (
	Pass        Outcome = "pass"
	Fail        Outcome = "fail"
	Unsupported Outcome = "unsupported" // this kernel, or this machine, cannot show it
	NotApplied  Outcome = "n/a"
)

// Row is one item judged on one plugin.
type Row struct {
	Item
	Judged  string  `json:"judged"` // the plugin's type, or which of weft's callers
	Outcome Outcome `json:"outcome"`
	Seen    string  `json:"seen,omitempty"` // what was seen, or the reason
}

// verdict is a row without its item.
type verdict struct {
	outcome Outcome
	seen    string
}

func pass() verdict { return verdict{outcome: Pass} }

func fail(format string, a ...any) verdict { return verdict{Fail, tidy(fmt.Sprintf(format, a...))} }

// What is another one in each run, so that rows can be compared: the kit's own paths and names, and the names and MACs
// that plugins make up.
var (
	ownPath  = regexp.MustCompile(`/run/weft-conformance/(worlds|recorders)/kit[0-9]+`)
	ownPod   = regexp.MustCompile(`\bkit[0-9]+-(pod[0-9]+)`)
	ownNet   = regexp.MustCompile(`\bkit[0-9]+x?\b`)
	madeName = regexp.MustCompile(`\b(veth|bwp|CNI-|CNI-DN-|CNI-SN-)[0-9a-f]{8,}\b`)
	anyMAC   = regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`)
)

func tidy(s string) string {
	s = ownPath.ReplaceAllString(s, "…")
	s = ownPod.ReplaceAllString(s, "$1")
	s = ownNet.ReplaceAllString(s, "net")
	s = madeName.ReplaceAllString(s, "$1…")
	return anyMAC.ReplaceAllString(s, "MAC")
}

func notApplied(format string, a ...any) verdict {
	return verdict{NotApplied, fmt.Sprintf(format, a...)}
}

func unsupported(format string, a ...any) verdict {
	return verdict{Unsupported, fmt.Sprintf(format, a...)}
}

// Report is what a run has found out about one directory.
type Report struct {
	BinDir  string            `json:"binDir"`
	Kernel  string            `json:"kernel"`
	Plugins []string          `json:"plugins"`
	Speaks  map[string]string `json:"speaks"` // the highest version of the specification, by plugin
	Totals  map[Outcome]int   `json:"totals"`
	Rows    []Row             `json:"rows"`
}

// required reports whether the specification demands the row's item.
func (r Row) required() bool { return r.Word == "must" }

// Broken counts the rows that failed, and those of them whose item the specification demands.
func (r *Report) Broken() (failed, required int) {
	for _, row := range r.Rows {
		if row.Outcome == Fail {
			failed++
			if row.required() {
				required++
			}
		}
	}
	return failed, required
}

// count adds the rows up.
func (r *Report) count() {
	r.Totals = map[Outcome]int{Pass: 0, Fail: 0, Unsupported: 0, NotApplied: 0}
	for _, row := range r.Rows {
		r.Totals[row.Outcome]++
	}
}
