// SPDX-License-Identifier: Apache-2.0

// Package glossary reads the tables of docs/glossary.md and finds the words in them that texts and names should avoid.
// Only tests use it.
package glossary

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Glossary has the tables of docs/glossary.md.
type Glossary struct {
	// Text lists words to avoid in text, Names those to avoid in names (Text included), Keys those to avoid as log keys.
	Text, Names, Keys *List
}

// List is a table of words to avoid.
type List struct {
	any    *regexp.Regexp
	write  map[string]string   // the replacement, by word
	except map[string][]string // phrases that may contain the word
}

// Finding is a word to avoid at an offset of a text.
type Finding struct {
	Offset  int
	Message string
}

// Parse reads docs/glossary.md.
func Parse(text string) (*Glossary, error) {
	section := func(title string) (string, error) {
		_, rest, ok := strings.Cut(text, "\n## "+title+"\n")
		if !ok {
			return "", fmt.Errorf("section %q is missing", title)
		}
		table, _, _ := strings.Cut(rest, "\n## ")
		return table, nil
	}
	words, err := section("Words to avoid")
	names, errNames := section("Words to avoid in names")
	keys, errKeys := section("Log keys to avoid")
	if err := errors.Join(err, errNames, errKeys); err != nil {
		return nil, err
	}
	g := &Glossary{parseTable(words), parseTable(words + names), parseTable(keys)}
	if len(g.Text.write) < 20 || len(g.Keys.write) == 0 {
		return nil, fmt.Errorf("only %d words and %d keys to avoid", len(g.Text.write), len(g.Keys.write))
	}
	return g, nil
}

func parseTable(table string) *List {
	l := &List{write: map[string]string{}, except: map[string][]string{}}
	var words []string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "Avoid" {
			continue
		}
		var except []string
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1) {
			except = append(except, m[1])
		}
		for word := range strings.SplitSeq(cells[1], ",") {
			word = strings.TrimSpace(word)
			words = append(words, regexp.MustCompile(` +`).ReplaceAllString(regexp.QuoteMeta(word), `[\s/]+`))
			l.write[word] = strings.TrimSpace(cells[2])
			l.except[word] = except
		}
	}
	// The longest first: "lock is held" before a word of it.
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	l.any = regexp.MustCompile(`\b(?:` + strings.Join(words, "|") + `)\b`)
	return l
}

// Find calls f for each word to avoid in the text, with its offset and its replacement.
func (l *List) Find(text string, f func(at int, word, write string)) {
	lower := strings.ToLower(text)
	for _, m := range l.any.FindAllStringIndex(lower, -1) {
		word := strings.Join(
			strings.FieldsFunc(lower[m[0]:m[1]], func(r rune) bool { return unicode.IsSpace(r) || r == '/' }),
			" ",
		)
		before := strings.Join(strings.Fields(lower[max(0, m[0]-40):m[0]]), " ") + " "
		after := strings.Join(strings.Fields(lower[m[0]:min(len(lower), m[1]+40)]), " ")
		if slices.ContainsFunc(l.except[word], func(p string) bool {
			i := strings.Index(p, word)
			return i >= 0 && strings.HasSuffix(" "+before, " "+p[:i]) && strings.HasPrefix(after, p[i:])
		}) {
			continue
		}
		f(m[0], word, l.write[word])
	}
}

// Has reports whether the word is in the list, and returns its replacement.
func (l *List) Has(word string) (write string, ok bool) {
	write, ok = l.write[word]
	return write, ok
}

var (
	quoted     = regexp.MustCompile("`[^`]*`|\"[^\"\n]*\"|“[^”]*”")
	excused    = regexp.MustCompile(`(?m)^.*\bglossary: \S.*$`)
	everything = regexp.MustCompile(`(?s).+`)
	// british is what American English spells otherwise. The kernel's and other projects' own names are in backquotes.
	british = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
		`(?:mis)?behaviours?`,
		`behavioural`,
		`colour(?:s|ed|ing|ful)?`,
		`neighbour(?:s|ed|ing|hoods?)?`,
		`favour(?:s|ed|ing|able|ites?)?`,
		`(?:dis)?honour(?:s|ed|ing|able)?`,
		`(?:labour|rumour|harbour|flavour|humour|vapour)(?:s|ed|ing)?`,
		`(?:centre|metre|litre|fibre|calibre|theatre|licence|defence|offence|pretence|catalogue|analogue|artefact)s?`,
		`centred`,
		`(?:cancel|label|travel|model|signal|tunnel|marshal|unmarshal|dial|redial|level|total|equal|fuel|channel|initial|panel|quarrel|spiral)l(?:ed|ing)`,
		`fulfil(?:s|ment)?`,
		`enrol(?:s|ment)?`,
		`skilful`,
		`wilful`,
		`instal`,
		`(?:re|un|de|dis|non)?(?:recogn|organ|initial|serial|normal|minim|maxim|optim|real|summar|util|synchron|author|priorit|standard|` +
			`general|final|custom|emphas|virtual|random|token|stabil|categor|character|capital|central|local|global|formal|special|` +
			`parallel|visual|canonical|critic|apolog|material|familiar|harmon|ideal|item|legal|neutral|popular|memor|monopol|penal)` +
			`is(?:e[sd]?|er|ing|ations?|able)`,
		`(?:analy|paraly|cataly)s(?:e[sd]|ing)`,
		`analyse`,
		`whilst`,
		`amongst`,
		`towards`,
		`grey(?:s|ed|ing)?`,
		`judgements?`,
		`acknowledgements?`,
		`learnt`,
		`spelt`,
		`burnt`,
		`dreamt`,
		`leapt`,
		`programmes?`,
		`manoeuvres?`,
		`sceptic(?:al|s)?`,
		`cheques?`,
		`ageing`,
		`practise[sd]?`,
		`mould(?:s|ed)?`,
	}, "|") + `)\b`)
)

// Excused reports whether a line has a comment that begins with "glossary:", which says why it keeps a word.
func Excused(line string) bool { return excused.MatchString(line) }

// Blank replaces what the expression matches with spaces, so that offsets and lines stay.
func Blank(text string, what *regexp.Regexp) string {
	return what.ReplaceAllStringFunc(text, func(s string) string {
		b := []byte(s)
		for i := range b {
			if b[i] != '\n' {
				b[i] = ' '
			}
		}
		return string(b)
	})
}

// Check finds words to avoid and British spelling in a text, outside of quotes and of excused lines.
func (l *List) Check(text string) []Finding {
	text = Blank(Blank(text, excused), quoted)
	var out []Finding
	l.Find(text, func(at int, word, write string) {
		out = append(out, Finding{at, fmt.Sprintf("%q: write %q", word, write)})
	})
	for _, m := range british.FindAllStringIndex(text, -1) {
		out = append(out, Finding{m[0], fmt.Sprintf("%q is British spelling", text[m[0]:m[1]])})
	}
	return out
}
