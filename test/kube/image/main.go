// SPDX-License-Identifier: Apache-2.0

// Command image writes an image for the test cluster from files of the host.
//
//	go run ./test/kube/image -name NAME:TAG -entrypoint PROGRAM [-cmd ARGUMENT] -o FILE SOURCE=PATH... @TARGET=PATH...
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/oci"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("name", "", "the image's `NAME:TAG`")
	entry := flag.String("entrypoint", "", "the `PROGRAM` that a container executes")
	arg := flag.String("cmd", "", "its `ARGUMENT` where the pod says none")
	out := flag.String("o", "", "the archive's `FILE`")
	flag.Parse()
	i := oci.Image{
		Name: *name, Arch: runtime.GOARCH, Created: time.Unix(0, 0), Entrypoint: []string{*entry},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	if *arg != "" {
		i.Cmd = []string{*arg}
	}
	for _, pair := range flag.Args() {
		f, err := file(pair)
		if err != nil {
			return err
		}
		i.Files = append(i.Files, f)
	}
	w, err := os.Create(*out)
	if err != nil {
		return err
	}
	if err := oci.Write(w, i); err != nil {
		_ = w.Close()
		return err
	}
	return w.Close()
}

// file reads one SOURCE=PATH, or creates the symbolic link of one @TARGET=PATH.
func file(pair string) (oci.File, error) {
	source, path, ok := strings.Cut(pair, "=")
	if !ok {
		return oci.File{}, fmt.Errorf("%q is no SOURCE=PATH", pair)
	}
	if target, link := strings.CutPrefix(source, "@"); link {
		return oci.File{Path: path, Link: target}, nil
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return oci.File{}, err
	}
	st, err := os.Stat(source)
	if err != nil {
		return oci.File{}, err
	}
	return oci.File{Path: path, Mode: int64(st.Mode().Perm()), Content: content}, nil
}
