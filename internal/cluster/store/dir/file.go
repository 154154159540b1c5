// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"sigs.k8s.io/yaml"
)

// entry is one object and its location.
type entry struct {
	store.Object
	file string
	line int
	span span
	item int // index in a List, -1 for an object of its own
}

// span is the bytes of one document.
type span struct{ start, end int }

// document is one document of a file.
type document struct {
	span
	line int // of its first byte, from 1
}

var (
	separator             = regexp.MustCompile(`^---[ \t]*(#.*)?\r?$`)
	contentAfterSeparator = regexp.MustCompile(`^---[ \t]+[^ \t#\r]`)
	lineOf                = regexp.MustCompile(`line (\d+)`)
)

// content is what a file says.
type content struct {
	entries  []entry
	problems []error
	// docs are the objects of the valid documents, by the document's text.
	docs map[string][]entry
}

// parse parses the objects of a file. Problems have file and line; valid documents are still returned. Documents that
// known has, of an earlier version, are not parsed again; n are those that were.
func parse(path string, isJSON bool, b []byte, known map[string][]entry) (c content, n int) {
	spans := []document{{span{0, len(b)}, 1}}
	if !isJSON {
		var err error
		if spans, err = split(b); err != nil {
			return content{problems: []error{at(path, 0, err)}}, 0
		}
	}
	whole := string(b) // the texts of docs are parts of it
	c.docs = make(map[string][]entry, len(spans))
	for _, d := range spans {
		text := b[d.start:d.end]
		skip := blankLines(text)
		if skip == len(text) {
			continue
		}
		line := d.line + bytes.Count(text[:skip], []byte("\n"))
		found, is := known[whole[d.start:d.end]]
		if !is {
			n++
			raw, err := toJSON(isJSON, text)
			if err != nil {
				c.problems = append(c.problems, at(path, d.line, err))
				continue
			}
			var errs []error
			found, errs = objects(raw)
			for _, err := range errs {
				c.problems = append(c.problems, at(path, -line, err))
			}
			is = len(errs) == 0
		}
		if is {
			c.docs[whole[d.start:d.end]] = found
		}
		for _, e := range found {
			e.file, e.line, e.span = path, line, d.span
			c.entries = append(c.entries, e)
		}
	}
	return c, n
}

// split splits a file at its "---" lines.
func split(b []byte) ([]document, error) {
	start, line := 0, 1
	if bytes.HasPrefix(b, []byte("\ufeff")) {
		start = len("\ufeff")
	}
	docs := []document{{span{start, len(b)}, 1}}
	for pos := start; pos < len(b); line++ {
		end := len(b)
		if i := bytes.IndexByte(b[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		text := bytes.TrimRight(b[pos:end], "\n")
		switch {
		case !bytes.HasPrefix(text, []byte("---")):
		case contentAfterSeparator.Match(text):
			return nil, fmt.Errorf("line %d: write the document on the line after \"---\"", line)
		case separator.Match(text):
			docs[len(docs)-1].end = pos
			docs = append(docs, document{span{end, len(b)}, line + 1})
		}
		pos = end
	}
	return docs, nil
}

// blankLines returns the length of the blank lines and comment lines at the beginning of a document, in bytes.
func blankLines(text []byte) int {
	pos := 0
	for pos < len(text) {
		end := len(text)
		if i := bytes.IndexByte(text[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		line := bytes.TrimSpace(text[pos:end])
		if len(line) > 0 && line[0] != '#' {
			return pos
		}
		pos = end
	}
	return len(text)
}

func toJSON(isJSON bool, text []byte) ([]byte, error) {
	if !isJSON {
		return yaml.YAMLToJSONStrict(text)
	}
	var v json.RawMessage
	err := json.Unmarshal(text, &v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := text[:min(int(syntax.Offset), len(text))]
		return nil, fmt.Errorf("line %d: %w", 1+bytes.Count(before, []byte("\n")), err)
	}
	return v, err
}

// objects returns the object of a document, or those of a List.
func objects(raw []byte) ([]entry, []error) {
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil || list.Kind != "List" || list.APIVersion != "v1" {
		o, err := store.NewObject(raw)
		if err != nil {
			return nil, []error{err}
		}
		return []entry{{Object: o, item: -1}}, nil
	}
	var found []entry
	var errs []error
	for i, item := range list.Items {
		o, err := store.NewObject(item)
		if err != nil {
			errs = append(errs, prefixed(fmt.Sprintf("items[%d]: ", i), err))
			continue
		}
		found = append(found, entry{Object: o, item: i})
	}
	return found, errs
}

// at adds file and line to an error. A positive line is that of the document's beginning, to which the parser's own
// line is added. A negative one is the line itself.
func at(path string, line int, err error) error {
	where := path + ": "
	if m := lineOf.FindStringSubmatch(err.Error()); line >= 0 && m != nil {
		n, _ := strconv.Atoi(m[1])
		if line > 0 {
			n += line - 1
		}
		where = fmt.Sprintf("%s line %d: ", path, n)
	} else if line != 0 {
		where = fmt.Sprintf("%s line %d: ", path, max(line, -line))
	}
	return prefixed(where, err)
}

// prefixed adds a prefix and keeps code and hint of an error.
func prefixed(prefix string, err error) error {
	var f *model.Error
	if errors.As(err, &f) {
		return &model.Error{Code: f.Code, Msg: prefix + f.Msg, Hint: f.Hint, Err: err}
	}
	return &model.Error{Code: model.CodeDecode, Msg: prefix + clean(err.Error()), Hint: "put the file right", Err: err}
}

// clean removes the parser's name and its line, which counts from the document's beginning, from a message.
func clean(msg string) string {
	out := regexpParser.ReplaceAllString(msg, "")
	return string(bytes.Join(bytes.Fields([]byte(out)), []byte(" ")))
}

var regexpParser = regexp.MustCompile(`error converting YAML to JSON: |yaml: |unmarshal errors:|line \d+: `)

// Decode returns the objects of a file of manifests, YAML or JSON by its name. Errors name the file and the line.
func Decode(path string, b []byte) ([]store.Object, error) {
	c, _ := parse(path, strings.HasSuffix(path, ".json"), b, nil)
	if len(c.problems) > 0 {
		return nil, errors.Join(c.problems...)
	}
	out := make([]store.Object, 0, len(c.entries))
	for _, e := range c.entries {
		out = append(out, e.Object)
	}
	return out, nil
}
