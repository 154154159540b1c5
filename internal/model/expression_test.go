// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"strings"
	"testing"
)

func TestExpressionMatches(t *testing.T) {
	labels := map[string]string{"zone": "west-1", "rack": "7", "all": "yes", "kubernetes.io/os": "linux", "empty": ""}
	for text, want := range map[string]bool{
		"":                                     true,
		" \t ":                                 true,
		"all()":                                true,
		"all( )":                               true,
		"!all()":                               false,
		"!!all()":                              true,
		"has(zone)":                            true,
		"has( empty )":                         true,
		"has(none)":                            false,
		"!has(none)":                           true,
		`zone == "west-1"`:                     true,
		`zone == 'west-1'`:                     true,
		`zone=="west-1"`:                       true,
		`zone == "east"`:                       false,
		`none == ""`:                           false,
		`empty == ""`:                          true,
		`zone != "west-1"`:                     false,
		`none != "west-1"`:                     true,
		`zone in {"east", "west-1"}`:           true,
		`zone in {"east","west-1",}`:           true,
		`zone in{}`:                            false,
		`none in {"a"}`:                        false,
		`zone not in {"east"}`:                 true,
		`zone not in {"west-1"}`:               false,
		`none not in {"west-1"}`:               true,
		`zone contains "est"`:                  true,
		`none contains ""`:                     false,
		`zone starts with "west"`:              true,
		`zone starts  with "est"`:              false,
		`zone ends with "-1"`:                  true,
		`zone startswith "west"`:               true,
		`zone endswith "-2"`:                   false,
		`zone notin {"east"}`:                  true,
		`none ends with ""`:                    false,
		`all == "yes"`:                         true, // a label, not the function
		`kubernetes.io/os == "linux"`:          true,
		`rack == "7" && zone == "east"`:        false,
		`rack == "7" || zone == "east"`:        true,
		`has(none) && has(none) || has(zone)`:  true, // && binds more than ||
		`has(zone) || has(none) && has(none)`:  true,
		`(has(zone) || has(none)) && has(no)`:  false,
		`!has(none) && !(has(zone) && has(x))`: true,
		`zone == "has(zone) && \"`:             false, // no escapes in quotes
		"zone == 'a\"b'":                       false,
	} {
		e, err := ParseExpression(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := e.Matches(labels); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if e.String() != text {
			t.Errorf("String() is %q, want %q", e.String(), text)
		}
	}
	if !(Expression{}).Matches(nil) {
		t.Error("the zero value matches nothing")
	}
}

func TestExpressionErrors(t *testing.T) {
	for text, want := range map[string]string{
		"zone":             `selector "zone", character 5: the end after the label "zone" (after a label: ==, !=, in, not in, contains, starts with, ends with)`,
		`zone = "a"`:       `selector "zone = \"a\"", character 6: unexpected character '=' (the signs are ==, !=, &&, ||, !, ( ), { } and the comma)`,
		`zone == a`:        `selector "zone == a", character 9: 'a' is not a quoted value (put quotation marks around the value)`,
		`zone == "a`:       `selector "zone == \"a", character 9: the text is not terminated (end it with ")`,
		`has(zone`:         `selector "has(zone", character 9: the end instead of ")"`,
		`has()`:            `selector "has()", character 5: ')' is not a label (write for example 'has(zone)')`,
		`any()`:            `selector "any()", character 5: there is no function "any" (the functions are 'all()' and 'has(label)')`,
		`global()`:         `selector "global()", character 8: global() selects Calico's objects without a namespace, which have no addresses of pools (remove it, or write 'all()')`,
		`all() all()`:      `selector "all() all()", character 7: unexpected 'all' (join conditions with "&&" or "||")`,
		`&& all()`:         `selector "&& all()", character 1: '&&' instead of a condition (write for example 'zone == "a"', 'has(zone)' or 'all()')`,
		`(all()`:           `selector "(all()", character 7: the end instead of ")"`,
		`zone in "a"`:      `selector "zone in \"a\"", character 9: the text "a" instead of "{"`,
		`zone in {"a" "b"`: `selector "zone in {\"a\" \"b\"", character 14: the text "b" instead of "}"`,
		`zone not "a"`:     `selector "zone not \"a\"", character 10: the text "a" after 'not' (write 'not in {"a", "b"}')`,
		`zone ends "a"`:    `selector "zone ends \"a\"", character 11: the text "a" after 'ends' (write 'ends with "text"')`,
		`zone & has(a)`:    `selector "zone & has(a)", character 6: unexpected character '&' (the signs are ==, !=, &&, ||, !, ( ), { } and the comma)`,
	} {
		_, err := ParseExpression(text)
		var f *Error
		if !errors.As(err, &f) || f.Code != CodeInvalidConf {
			t.Errorf("%s: %v is not an error with code CodeInvalidConf", text, err)
			continue
		}
		if err.Error() != want {
			t.Errorf("%s:\n got %s\nwant %s", text, err, want)
		}
	}
	if _, err := ParseExpression(strings.Repeat("(", 100_000)); err == nil ||
		!strings.Contains(err.Error(), "more than 100 parentheses are open") {
		t.Errorf("100,000 parentheses: %.80v", err)
	}
}

// FuzzParseExpression: whatever is written, parsing ends, and what can be read is read the same when it is taken apart:
// its opposite, and its double opposite.
func FuzzParseExpression(f *testing.F) {
	for _, s := range []string{
		"", "all()", `a == "b" && !(c in {"d",'e'} || has(f))`, `a starts with "x"`, `a not in {}`, "((", `"`,
	} {
		f.Add(s, "a", "b")
	}
	f.Fuzz(func(t *testing.T, text, label, value string) {
		e, err := ParseExpression(text)
		if err != nil {
			return
		}
		labels := map[string]string{label: value}
		got := e.Matches(labels)
		if strings.TrimLeft(text, " \t\r\n") == "" {
			return
		}
		for prefix, want := range map[string]bool{"!(": !got, "!!(": got, "(": got} {
			o, err := ParseExpression(prefix + text + ")")
			if err != nil {
				if strings.Contains(err.Error(), "parentheses") {
					return
				}
				t.Fatalf("%q can be read, %q cannot: %v", text, prefix+text+")", err)
			}
			if o.Matches(labels) != want {
				t.Fatalf("%q is %v of %v, and %q is not %v", text, got, labels, prefix+text+")", want)
			}
		}
	})
}
