// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/plural"
)

// Text prints a line for each test, and the failed checks with what explains them; with verbose all checks.
func (r Report) Text(w io.Writer, verbose bool) {
	passed, failed, skipped := 0, 0, 0
	for _, t := range r.Tests {
		bad := t.Failed()
		switch {
		case bad > 0:
			failed++
			fmt.Fprintf(w, "FAIL  %-13s %d of %d checks, %.1f s\n", t.Name, bad, len(t.Rows), seconds(t.Millis))
		case len(t.Rows) == 0:
			skipped++
			fmt.Fprintf(w, "skip  %-13s %s\n", t.Name, strings.Join(t.Skipped, "; "))
			continue
		default:
			passed++
			fmt.Fprintf(w, "ok    %-13s %s, %.1f s\n", t.Name, plural.Count(len(t.Rows), "check", "checks"), seconds(t.Millis))
		}
		for _, reason := range t.Skipped {
			fmt.Fprintf(w, "      skipped: %s\n", reason)
		}
		for _, row := range t.Rows {
			row.text(w, verbose)
		}
		if t.Error != "" {
			fmt.Fprintf(w, "      ended: %s\n", t.Error)
		}
	}
	fmt.Fprintf(w, "%s passed, %d failed, %d skipped, %.0f s\n", plural.Count(passed, "test", "tests"), failed, skipped, seconds(r.Millis))
}

func (r Row) text(w io.Writer, verbose bool) {
	switch {
	case !r.OK:
		fmt.Fprintf(w, "      %s: %s\n", r.Name, r.Error)
	case verbose && r.Result.MTU > 0:
		fmt.Fprintf(w, "      %s: ok, %d bytes\n", r.Name, r.Result.MTU)
	case verbose && r.Result.Detail != "":
		fmt.Fprintf(w, "      %s: ok, %s\n", r.Name, r.Result.Detail)
	case verbose:
		fmt.Fprintf(w, "      %s: ok, attempts %d\n", r.Name, r.Attempts)
	}
	for _, line := range r.Diagnosis {
		fmt.Fprintf(w, "        %s\n", line)
	}
}

func seconds(millis int64) float64 { return (time.Duration(millis) * time.Millisecond).Seconds() }

// JUnit writes the results as a test suite for each test (the format of Ant's task junit, as CI systems read it).
func (r Report) JUnit(w io.Writer) error {
	type failure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type skip struct {
		Message string `xml:"message,attr"`
	}
	type testcase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Seconds string   `xml:"time,attr"`
		Failure *failure `xml:"failure,omitempty"`
		Skipped *skip    `xml:"skipped,omitempty"`
	}
	type testsuite struct {
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Seconds  string     `xml:"time,attr"`
		Cases    []testcase `xml:"testcase"`
	}
	type testsuites struct {
		XMLName xml.Name    `xml:"testsuites"`
		Suites  []testsuite `xml:"testsuite"`
	}
	var all testsuites
	for _, t := range r.Tests {
		suite := testsuite{
			Name:     t.Name,
			Failures: t.Failed(),
			Skipped:  len(t.Skipped),
			Seconds:  fmt.Sprintf("%.3f", seconds(t.Millis)),
		}
		add := func(c testcase) { c.Class = "connectivity-test." + t.Name; suite.Cases = append(suite.Cases, c) }
		for _, row := range t.Rows {
			c := testcase{Name: row.Name, Seconds: fmt.Sprintf("%.6f", float64(row.Result.Micros)/1e6)}
			if !row.OK {
				c.Failure = &failure{row.Error, strings.Join(row.Diagnosis, "\n")}
			}
			add(c)
		}
		for _, reason := range t.Skipped {
			add(testcase{Name: reason, Seconds: "0", Skipped: &skip{reason}})
		}
		if t.Error != "" {
			add(testcase{Name: "end", Seconds: "0", Failure: &failure{Message: t.Error}})
		}
		suite.Tests = len(suite.Cases)
		all.Suites = append(all.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
