// SPDX-License-Identifier: Apache-2.0

// Command table writes the results of Kubernetes' specs as a table, from their JUnit reports.
//
//	table [-network NAME] [-reasons FILE] REPORT...
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
	file := flag.String("reasons", "", "the `FILE` that explains failures: a part of a spec's name, a tab, the reason")
	flag.Parse()
	if err := run(os.Stdout, *network, *file, flag.Args()); err != nil {
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

func run(w io.Writer, network, file string, reports []string) error {
	var reasons []reason
	if file != "" {
		var err error
		if reasons, err = read(file); err != nil {
			return err
		}
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
	return table(w, all, network, reasons)
}

// read reads the reasons. Lines that begin with # are comments.
func read(file string) ([]reason, error) {
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
var labels = regexp.MustCompile(` \[sig-network[^]]*\]$`)

func table(w io.Writer, all []spec, network string, reasons []reason) error {
	ran := slices.DeleteFunc(all, func(s spec) bool {
		return s.Status == "skipped" || s.Failure == nil && notSpec.MatchString(s.Name)
	})
	slices.SortStableFunc(ran, func(a, b spec) int {
		return cmp.Or(strings.Compare(a.first(), b.first()), cmp.Compare(a.Name, b.Name))
	})
	passed := 0
	for _, s := range ran {
		if s.Status == "passed" {
			passed++
		}
	}
	fmt.Fprintf(
		w, "%s: %d specs of Kubernetes' [sig-network] passed, %d failed.\n\n| spec | | s | why |\n|---|---|---|---|\n",
		network, passed, len(ran)-passed,
	)
	for _, s := range ran {
		name := strings.TrimPrefix(labels.ReplaceAllString(strings.TrimPrefix(s.Name, "[It] "), ""), "[sig-network] ")
		if _, err := fmt.Fprintf(w, "| %s | %s | %.0f | %s |\n", cell(name), s.Status, s.Seconds,
			cell(why(s, reasons))); err != nil {
			return err
		}
	}
	return nil
}

// why returns the known reason of a failure, or else the spec's message.
func why(s spec, reasons []reason) string {
	if s.Failure == nil {
		return ""
	}
	for _, r := range reasons {
		if strings.Contains(s.Name, r.part) {
			return r.text
		}
	}
	first, _, _ := strings.Cut(s.Failure.Message, "\n")
	return first
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
