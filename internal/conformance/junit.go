// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
)

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string      `xml:"classname,attr"`
	Name    string      `xml:"name,attr"`
	Failure *junitNote  `xml:"failure"`
	Skipped *junitNote  `xml:"skipped"`
	Output  *junitPlain `xml:"system-out"`
}

type junitNote struct {
	Message string `xml:"message,attr"`
}

type junitPlain struct {
	Text string `xml:",chardata"`
}

// JUnit writes the report in JUnit's format: a suite for each plugin, a case for each item. A failed row is a failure
// if its item is required; otherwise the case passes, with what was seen as its output.
func (r *Report) JUnit(w io.Writer) error {
	var all junitSuites
	for _, row := range r.Rows {
		i := slices.IndexFunc(all.Suites, func(s junitSuite) bool { return s.Name == row.Subject })
		if i < 0 {
			i = len(all.Suites)
			all.Suites = append(all.Suites, junitSuite{Name: row.Subject})
		}
		s := &all.Suites[i]
		c := junitCase{Class: row.Subject, Name: fmt.Sprintf("item %d (%s): %s", row.Number, row.Word, row.Claim)}
		switch {
		case row.Outcome == Fail && row.required():
			c.Failure = &junitNote{row.Seen}
			s.Failures++
		case row.Outcome == Fail:
			c.Output = &junitPlain{"fails, but is not required: " + row.Seen}
		case row.Outcome != Pass:
			c.Skipped = &junitNote{fmt.Sprintf("%s: %s", row.Outcome, row.Seen)}
			s.Skipped++
		}
		s.Tests++
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("JUnit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}
