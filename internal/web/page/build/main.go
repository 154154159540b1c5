// SPDX-License-Identifier: Apache-2.0

// Command build bundles the sources of weft's page. It is a module of its own so that weft does not link the bundler.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	src := flag.String("src", "../src", "`DIR` with the sources")
	packages := flag.String("packages", "", "`DIR` node_modules")
	out := flag.String("o", "../files", "`DIR` to write")
	flag.Parse()
	if err := build(*src, *packages, *out); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func build(src, packages, out string) error {
	src, err := filepath.Abs(src)
	if err == nil {
		packages, err = filepath.Abs(packages)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: src, NodePaths: []string{packages},
		EntryPoints: []string{filepath.Join(src, "app.jsx"), filepath.Join(src, "app.css")},
		Bundle:      true, Write: false, Outdir: out,
		MinifySyntax: true, MinifyWhitespace: true, MinifyIdentifiers: true,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", Target: api.ES2020, Format: api.FormatIIFE,
		LegalComments: api.LegalCommentsNone, // NOTICES has them
		Charset:       api.CharsetUTF8, LogLevel: api.LogLevelWarning,
		Define: map[string]string{"process.env.NODE_ENV": `"production"`},
	})
	if len(result.Errors) > 0 {
		return errors.New(result.Errors[0].Text)
	}
	for _, f := range result.OutputFiles {
		if err := os.WriteFile(filepath.Join(out, filepath.Base(f.Path)), f.Contents, 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{"index.html", "icon.svg"} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), b, 0o644); err != nil {
			return err
		}
	}
	return notices(packages, filepath.Join(out, "NOTICES.txt"))
}

// notices collects the licenses of what is in the bundle.
func notices(packages, path string) error {
	var b bytes.Buffer
	b.WriteString("weft's page has code of these packages.\n")
	for _, name := range []string{"preact", "uplot", "@preact/signals", "@preact/signals-core"} {
		text, err := os.ReadFile(filepath.Join(packages, name, "LICENSE"))
		if err != nil {
			return fmt.Errorf("license of %s: %w", name, err)
		}
		manifest, err := os.ReadFile(filepath.Join(packages, name, "package.json"))
		if err != nil {
			return fmt.Errorf("version of %s: %w", name, err)
		}
		var of struct{ Version, License string }
		if err := json.Unmarshal(manifest, &of); err != nil {
			return fmt.Errorf("package.json of %s: %w", name, err)
		}
		fmt.Fprintf(&b, "\n== %s %s (%s)\n\n%s\n", name, of.Version, of.License, bytes.TrimSpace(text))
	}
	b.WriteString("\n== end\n") // where it ends in a program that has this file
	return os.WriteFile(path, b.Bytes(), 0o644)
}
