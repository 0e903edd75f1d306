package house

import (
	"cmp"
	"go/ast"
	"go/token"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// instruments are the functions of internal/telemetry that make an instrument with a given name.
var instruments = []string{"Counter", "Gauge", "Switch", "Level", "ObservableCounter", "Sizes", "Seconds"}

// warnings are the methods of loggers whose messages operators read. Debug is not among them.
var warnings = []string{"Info", "InfoContext", "Warn", "WarnContext", "Error", "ErrorContext"}

// reported are the directories of code that runs in production.
var reported = []string{"relay", "inbox", "idempotency", "outbound", "webhook", "saga", "outbox", "natsjs", "operator", "deadletter", "schema", "cmd", "internal", "postmill"}

var (
	metricName    = regexp.MustCompile("`(postroom\\.[a-z_]+\\.[a-z_.]+)`")
	telemetryName = regexp.MustCompile(`(?m)^\t(\w+) += "(postroom\.[a-z_.]+)"`)
	errorName     = regexp.MustCompile(`(?m)^\tvar (Err[A-Za-z]+)`) // in docs/api.txt
	nameOfError   = regexp.MustCompile(`\bErr\w+`)                  // on a page
)

// The reference has all metrics, log messages and exported errors. It names no metric that does not
// exist.
func TestReferenceNamesWhatIsReported(t *testing.T) {
	t.Parallel()
	metrics, messages := reports(t)
	if len(metrics) < 30 || len(messages) < 50 {
		t.Fatalf("%d metrics and %d log messages were found: the test looks for them in the wrong way", len(metrics), len(messages))
	}
	page := readText(t, "docs/reference/metrics.md")
	for _, name := range metrics {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/reference/metrics.md does not name %s", name)
		}
	}
	for _, m := range metricName.FindAllStringSubmatch(page, -1) {
		if !slices.Contains(metrics, m[1]) {
			t.Errorf("docs/reference/metrics.md names %s, which does not exist", m[1])
		}
	}
	page = readText(t, "docs/reference/log-messages.md")
	for _, message := range messages {
		if !strings.Contains(page, "`"+message) {
			t.Errorf("docs/reference/log-messages.md does not have %q", message)
		}
	}
	named := make(map[string]bool)
	for _, text := range documentation(t) {
		for _, name := range nameOfError.FindAllString(text, -1) {
			named[name] = true
		}
	}
	found := errorName.FindAllStringSubmatch(readText(t, apiFile), -1)
	if len(found) < 20 {
		t.Fatalf("%d exported errors were found: the test looks for them in the wrong way", len(found))
	}
	for _, m := range found {
		if !named[m[1]] {
			t.Errorf("no page of the documentation names %s", m[1])
		}
	}
}

// telemetryNames returns the constants of internal/telemetry.
func telemetryNames(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range telemetryName.FindAllStringSubmatch(readText(t, "internal/telemetry/telemetry.go"), -1) {
		all[m[1]] = m[2]
	}
	return all
}

// reports returns the names of the instruments and the messages of the log lines.
func reports(t *testing.T) (metrics, messages []string) {
	t.Helper()
	names := telemetryNames(t)
	inUse := func(f *file) bool {
		dirs := strings.Split(f.dir, "/")
		return isCode(f) && slices.Contains(reported, dirs[0]) &&
			!slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(dir, "dev") }) // test servers
	}
	for _, f := range files(t, inUse) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch name := called(call); {
			case slices.Contains(instruments, name):
				for _, arg := range call.Args {
					if sel, ok := arg.(*ast.SelectorExpr); ok && names[sel.Sel.Name] != "" {
						metrics = append(metrics, names[sel.Sel.Name])
					}
				}
			case slices.Contains(warnings, name):
				messages = append(messages, firstText(call)...)
			}
			return true
		})
	}
	return metrics, messages
}

// called returns the last name of the function that is called.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// firstText returns the first string literal among the first two arguments.
func firstText(call *ast.CallExpr) []string {
	for _, arg := range call.Args[:min(2, len(call.Args))] {
		lit, ok := arg.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			continue
		}
		if text, err := strconv.Unquote(lit.Value); err == nil {
			return []string{text}
		}
	}
	return nil
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var pictureLabel = regexp.MustCompile(`label="([^"]*)"`)

// Each picture was drawn from the current version of its text. make pictures draws them.
func TestPicturesAreDrawn(t *testing.T) {
	t.Parallel()
	texts, err := filepath.Glob("docs/pictures/*.dot")
	if err != nil || len(texts) == 0 {
		t.Fatalf("%d texts of pictures: %v", len(texts), err)
	}
	for _, path := range texts {
		picture := strings.TrimSuffix(path, ".dot") + ".svg"
		drawn := html.UnescapeString(readText(t, picture))
		for _, m := range pictureLabel.FindAllStringSubmatch(readText(t, path), -1) {
			for line := range strings.SplitSeq(m[1], `\n`) {
				if !strings.Contains(drawn, ">"+line+"</text>") {
					t.Errorf("%s lacks %q of %s: make pictures", picture, line, path)
				}
			}
		}
	}
	bars := exec.CommandContext(t.Context(), "awk", "-f", "bars.awk", "../results/benchmarks.md")
	bars.Dir = "docs/pictures"
	drawn, err := bars.Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(drawn) != readText(t, "docs/pictures/benchmarks.svg") {
		t.Error("docs/pictures/benchmarks.svg is not of the table in docs/results/benchmarks.md: make pictures")
	}
}

var (
	quotation  = regexp.MustCompile("`([^`]+)`")
	quotedText = regexp.MustCompile(`^[A-Za-z ,:;.…'-]+$`)
	goOrShell  = regexp.MustCompile(`^postroom |^sudo |^[A-Z]\w+: |\w\.[A-Z]|^TRUNCATE | --`)
	formatVerb = regexp.MustCompile(`%[-+#0-9.]*[a-zA-Z]`)
)

// foreignTexts are quoted texts of other programs.
var foreignTexts = []string{
	"nats: connection closed: nats: Authorization Violation",
	"context deadline exceeded",
	"prepared statement … already exists",
}

// If a page quotes a log message or an error, the code has that text. In a quotation, … stands for
// a part that varies.
func TestQuotedMessagesAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	said := texts(t)
	quoted := 0
	for page, text := range documentation(t) {
		if isOfThePast(page) || page == "CONTRIBUTING.md" || strings.HasPrefix(page, "docs/contributing/") {
			continue // pages for contributors quote bad wording, SQL and commands
		}
		for _, m := range quotation.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			quote := strings.Join(strings.Fields(m[1]), " ")
			if !quotedText.MatchString(quote) || goOrShell.MatchString(quote) || strings.Count(quote, " ") < 2 || slices.Contains(foreignTexts, quote) {
				continue
			}
			quoted++
			if !slices.ContainsFunc(said, func(text string) bool { return says(text, quote) }) {
				t.Errorf("%s quotes %q, which the code does not say", page, quote)
			}
		}
	}
	if quoted < 100 {
		t.Errorf("%d quotations were found: the test looks for them in the wrong way", quoted)
	}
}

// says reports whether a text has the pieces of a quotation, in their order.
func says(text, quote string) bool {
	for piece := range strings.SplitSeq(quote, "…") {
		_, after, found := strings.Cut(text, strings.TrimSpace(piece))
		if !found {
			return false
		}
		text = after
	}
	return true
}

// texts returns the string literals of all modules, except tests. Literals that are added are one
// text. In a text, … replaces format verbs and other values.
func texts(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, f := range files(t, isCode) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			expr, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text := literal(expr)
			if text == "" {
				return true
			}
			all = append(all, text)
			return false
		})
	}
	return all
}

// literal returns the text of a string literal, or of several that are added. For any other
// expression it returns "".
func literal(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return formatVerb.ReplaceAllString(text, "…")
		}
	case *ast.BinaryExpr:
		if left, right := literal(e.X), literal(e.Y); e.Op == token.ADD && left+right != "" {
			return cmp.Or(left, "…") + cmp.Or(right, "…")
		}
	}
	return ""
}
