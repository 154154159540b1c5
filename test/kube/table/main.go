// SPDX-License-Identifier: Apache-2.0

// Command table writes what Kubernetes' specs found as a table: their report as JUnit's XML on standard input.
package main

import (
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
	flag.Parse()
	if err := table(os.Stdout, os.Stdin, *network); err != nil {
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

type failure struct {
	Message string `xml:"message,attr"`
}

// notSpec is what stands around the specs.
var notSpec = regexp.MustCompile(`^\[(SynchronizedBeforeSuite|SynchronizedAfterSuite|BeforeSuite|AfterSuite|ReportAfterSuite|ReportBeforeSuite|DeferCleanup.*)\]`)

func table(w io.Writer, r io.Reader, network string) error {
	var all report
	if err := xml.NewDecoder(r).Decode(&all); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	ran := slices.DeleteFunc(all.Cases, func(s spec) bool {
		return s.Status == "skipped" || s.Failure == nil && notSpec.MatchString(s.Name)
	})
	slices.SortStableFunc(ran, func(a, b spec) int { return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Name, b.Name)) })
	passed := 0
	for _, s := range ran {
		if s.Status == "passed" {
			passed++
		}
	}
	fmt.Fprintf(w, "%s: %d specs of Kubernetes' [sig-network] passed, %d failed.\n\n| spec | | s | why |\n|---|---|---|---|\n", network, passed, len(ran)-passed)
	for _, s := range ran {
		why := ""
		if s.Failure != nil {
			why, _, _ = strings.Cut(s.Failure.Message, "\n")
		}
		if _, err := fmt.Fprintf(w, "| %s | %s | %.0f | %s |\n", cell(strings.TrimPrefix(s.Name, "[It] ")), s.Status, s.Seconds, cell(why)); err != nil {
			return err
		}
	}
	return nil
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
