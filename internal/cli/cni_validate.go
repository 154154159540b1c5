// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/dhcp"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// examined is the document of weft cni validate -o json.
type examined struct {
	File string `json:"file"`
	OK   bool   `json:"ok"`
	cni.Report
}

func newCNIValidateCmd(env Env) *cobra.Command {
	var strict bool
	var output string
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a network configuration without using it",
		Long: "Reads a CNI network configuration (.conf, .conflist or .json; - is standard input) and says what is wrong with\n" +
			"it: errors, with which an ADD fails, and warnings: unknown keys with the nearest known one, settings without\n" +
			"effect, keys that stand twice or belong to the runtime. Exits with 1 when there are errors, and with --strict\n" +
			"also when there are warnings.",
		Args: oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("output %q is neither text nor json", output)}
			}
			b, err := readConf(env, args[0])
			if err != nil {
				return err
			}
			report := cni.Examine(b, plugin.InAgent(), allocators())
			return printExamined(env.Stdout, examined{File: args[0], OK: report.OK(strict), Report: report}, strict, output)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "count warnings as errors")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func allocators() map[string]ipam.Allocator {
	host, fixed, leased := hostlocal.New(hostlocal.Config{}), static.New(), dhcp.New(nil)
	table := map[string]ipam.Allocator{host.Type(): host, fixed.Type(): fixed, leased.Type(): leased}
	for _, shared := range blocks.Readers(os.ReadFile) {
		table[shared.Type()] = shared
	}
	return table
}

func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{errors.New("name one configuration file")}
	}
	return nil
}

func readConf(env Env, name string) ([]byte, error) {
	const most = 1<<20 + 1 // one byte more than ParseNetwork accepts
	in := env.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, model.Faultf(model.CodeIO, "name a file, or - for standard input", "configuration: %w", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, most))
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	return b, nil
}

// printExamined prints the report and returns the error that the exit code comes from.
func printExamined(w io.Writer, e examined, strict bool, output string) error {
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		if err := enc.Encode(e); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	} else {
		for _, p := range e.Errors {
			fmt.Fprintf(w, "%s: error: %s\n", e.File, p)
		}
		for _, warning := range e.Warnings {
			fmt.Fprintf(w, "%s: warning: %s\n", e.File, warning)
		}
		if len(e.Errors)+len(e.Warnings) == 0 {
			fmt.Fprintf(w, "%s: network %q, cniVersion %s, plugins %v: no errors, no warnings\n", e.File, e.Network, e.CNIVersion, e.Plugins)
		}
	}
	switch {
	case e.OK:
		return nil
	case strict && len(e.Errors) == 0:
		return fmt.Errorf("configuration %s: %d warnings (--strict)", e.File, len(e.Warnings))
	}
	return fmt.Errorf("configuration %s: %d errors, %d warnings", e.File, len(e.Errors), len(e.Warnings))
}
