// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"regexp"
)

// Outcome is the outcome of a check.
type Outcome string

// The outcomes.
const (
	Pass        Outcome = "pass"
	Fail        Outcome = "fail"
	Unsupported Outcome = "unsupported" // this kernel or host lacks a feature
	NotApplied  Outcome = "n/a"
)

// Row is the outcome of one item on one subject.
type Row struct {
	Item
	Subject string  `json:"judged"` // the plugin's type, or one of weft's callers
	Outcome Outcome `json:"outcome"`
	Seen    string  `json:"seen,omitempty"` // what was seen, or the reason
}

// verdict is the outcome of a check.
type verdict struct {
	outcome Outcome
	seen    string
}

func pass() verdict { return verdict{outcome: Pass} }

func fail(format string, a ...any) verdict {
	return verdict{Fail, normalize(fmt.Sprintf(format, a...))}
}

// These differ in each run and are normalized, so that rows are comparable: paths and names of the kit, and random
// names and MAC addresses of plugins.
var (
	ownPath    = regexp.MustCompile(`/run/weft-conformance/(worlds|recorders)/kit[0-9]+`)
	ownPod     = regexp.MustCompile(`\bkit[0-9]+-(pod[0-9]+)`)
	ownNet     = regexp.MustCompile(`\bkit[0-9]+x?\b`)
	randomName = regexp.MustCompile(`\b(veth|bwp|CNI-|CNI-DN-|CNI-SN-)[0-9a-f]{8,}\b`)
	macAddress = regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`)
)

func normalize(s string) string {
	s = ownPath.ReplaceAllString(s, "…")
	s = ownPod.ReplaceAllString(s, "$1")
	s = ownNet.ReplaceAllString(s, "net")
	s = randomName.ReplaceAllString(s, "$1…")
	return macAddress.ReplaceAllString(s, "MAC")
}

func notApplied(format string, a ...any) verdict {
	return verdict{NotApplied, fmt.Sprintf(format, a...)}
}

func unsupported(format string, a ...any) verdict {
	return verdict{Unsupported, fmt.Sprintf(format, a...)}
}

// Report is the result of a run on one directory.
type Report struct {
	BinDir   string            `json:"binDir"`
	Kernel   string            `json:"kernel"`
	Plugins  []string          `json:"plugins"`
	Versions map[string]string `json:"speaks"` // the highest supported version of the specification, by plugin
	Totals   map[Outcome]int   `json:"totals"`
	Rows     []Row             `json:"rows"`
}

// required reports whether the specification requires the row's item.
func (r Row) required() bool { return r.Word == "must" }

// Failures counts the failed rows, and those of them whose item is required.
func (r *Report) Failures() (failed, required int) {
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

// countTotals counts the rows by outcome.
func (r *Report) countTotals() {
	r.Totals = map[Outcome]int{Pass: 0, Fail: 0, Unsupported: 0, NotApplied: 0}
	for _, row := range r.Rows {
		r.Totals[row.Outcome]++
	}
}
