// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
)

// OutOfRange returns the error for a flag whose value is outside of limits such as "1 to 200". example is a value inside.
func OutOfRange(flag string, value any, limits string, example any) error {
	return Errorf(CodeInvalidConf, fmt.Sprintf("for example %s %v", flag, example), "%s %v is out of range: %s", flag,
		value, limits)
}

// NotOneOf returns the error for a flag whose value is not one of those known.
func NotOneOf(flag, value string, known ...string) error {
	example := known[0]
	if strings.Contains(example, " ") {
		example = fmt.Sprintf("%q", example)
	}
	return Errorf(CodeInvalidConf, "for example "+flag+" "+example, "%s %q is not %s", flag, value, OneOf(known))
}

// OneOf lists alternatives: a, b or c.
func OneOf(values []string) string {
	last := len(values) - 1
	if last < 1 {
		return strings.Join(values, "")
	}
	return strings.Join(values[:last], ", ") + " or " + values[last]
}
