// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/model"
)

// OutputFlag adds -o with its allowed values, the first the default.
func OutputFlag(cmd *cobra.Command, values ...string) *string {
	output := cmd.Flags().StringP("output", "o", values[0], strings.Join(values, " or "))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if slices.Contains(values, *output) {
			return nil
		}
		return UsageError(fmt.Errorf("--output %q is not %s", *output, strings.Join(values, " or ")))
	}
	return output
}

// TextOrJSON refuses another output format.
func TextOrJSON(o string) error {
	if o != "text" && o != "json" {
		return UsageError(model.Faultf(model.CodeInvalidConf, "give text or json", "-o %q is no output format", o))
	}
	return nil
}

// NoArgs refuses arguments.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return UsageError(fmt.Errorf("argument %q is too much", args[0]))
	}
	return nil
}
