// SPDX-License-Identifier: Apache-2.0

// Command table writes the results of Kubernetes' specs, or of another project's, as a table, from their JUnit reports.
//
//	table [-network NAME] [-suite NAME] [-reasons FILE] [-not-applicable FILE] REPORT...
package main

import (
	"bufio"
	"cmp"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	network := flag.String("network", "weft", "the `NAME` of the network that was tested")
	suite := flag.String("suite", "Kubernetes' [sig-network]", "the `NAME` of the suite")
	file := flag.String("reasons", "", "the `FILE` that explains failures: a part of a spec's name, a tab, the reason")
	none := flag.String("not-applicable", "", "the `FILE` that says, in that form, why specs that no run chose do not apply")
	flag.Parse()
	if err := run(os.Stdout, *network, *suite, *file, *none, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

type report struct {
	Cases []spec `xml:"testsuite>testcase"`
}

type spec struct {
	Name    string   `xml:"name,attr"`
	Status  string   `xml:"status,attr"`
	Seconds float64  `xml:"time,attr"`
	Failure *failure `xml:"failure"`
}

// first sorts failures before passes.
func (s spec) first() string {
	if s.Status == "passed" {
		return "z"
	}
	return ""
}

type failure struct {
	Message string `xml:"message,attr"`
}

// reason is the known reason of a failure.
type reason struct{ part, text string }

func run(w io.Writer, network, suite, file, none string, reports []string) error {
	reasons, err := read(file)
	if err != nil {
		return err
	}
	not, err := read(none)
	if err != nil {
		return err
	}
	var all []spec
	for _, path := range reports {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var r report
		if err := xml.Unmarshal(b, &r); err != nil {
			return fmt.Errorf("report %s: %w", path, err)
		}
		all = append(all, r.Cases...)
	}
	return table(w, all, network, suite, reasons, not)
}

// read reads the reasons; "" has none. Lines that begin with # are comments.
func read(file string) ([]reason, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []reason
	for lines := bufio.NewScanner(f); lines.Scan(); {
		part, text, ok := strings.Cut(lines.Text(), "\t")
		if strings.HasPrefix(part, "#") || part == "" {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("reasons %s: no tab in %q", file, part)
		}
		all = append(all, reason{part, text})
	}
	return all, nil
}

// notSpec matches entries that are not specs.
var notSpec = regexp.MustCompile(
	`^\[(SynchronizedBeforeSuite|SynchronizedAfterSuite|BeforeSuite|AfterSuite|ReportAfterSuite|ReportBeforeSuite|DeferCleanup.*)\]`,
)

// labels matches the labels after a spec's name.
var labels = regexp.MustCompile(` \[sig-(network|calico)[^]]*\]$`)

func table(w io.Writer, all []spec, network, suite string, reasons, not []reason) error {
	var ran, rest []spec
	listed := map[string]bool{}
	for _, s := range all {
		switch {
		case s.Status != "skipped" && (s.Failure != nil || !notSpec.MatchString(s.Name)):
			ran = append(ran, s)
		case s.Status == "skipped" && because(s, not) != "" && !listed[s.Name]: // in the report of each run
			rest, listed[s.Name] = append(rest, s), true
		}
	}
	slices.SortStableFunc(ran, func(a, b spec) int {
		return cmp.Or(strings.Compare(a.first(), b.first()), cmp.Compare(a.Name, b.Name))
	})
	passed := 0
	for _, s := range ran {
		if s.Status == "passed" {
			passed++
		}
	}
	fmt.Fprintf(w, "%s: %d specs of %s passed, %d failed", network, passed, suite, len(ran)-passed)
	if len(rest) > 0 {
		fmt.Fprintf(w, ", %d do not apply", len(rest))
	}
	if _, err := fmt.Fprint(w, ".\n\n| spec | | s | why |\n|---|---|---|---|\n"); err != nil {
		return err
	}
	for _, s := range ran {
		if _, err := fmt.Fprintf(w, "| `%s` | %s | %.0f | %s |\n", cell(s.short()), s.Status, s.Seconds,
			cell(why(s, reasons))); err != nil {
			return err
		}
	}
	slices.SortStableFunc(rest, func(a, b spec) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range rest {
		if _, err := fmt.Fprintf(w, "| `%s` | not applicable | | %s |\n", cell(s.short()), cell(because(s, not))); err != nil {
			return err
		}
	}
	return nil
}

// short returns the spec's name without labels and without the name of its group.
func (s spec) short() string {
	name := labels.ReplaceAllString(strings.TrimPrefix(s.Name, "[It] "), "")
	for _, group := range []string{"[sig-network] ", "[sig-calico] [Team:CORE] "} {
		name = strings.TrimPrefix(name, group)
	}
	return strings.TrimSpace(name)
}

// because returns the reason that fits the spec's name, or "".
func because(s spec, reasons []reason) string {
	for _, r := range reasons {
		if strings.Contains(s.Name, r.part) {
			return r.text
		}
	}
	return ""
}

// why returns the known reason of a failure, or else the spec's message.
func why(s spec, reasons []reason) string {
	if s.Failure == nil {
		return ""
	}
	if text := because(s, reasons); text != "" {
		return text
	}
	first, _, _ := strings.Cut(s.Failure.Message, "\n")
	return first
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
