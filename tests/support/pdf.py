"""A small PDF file for tests of readers."""


def make_pdf(text):
    """A PDF file of one page; readers must rebuild its table of objects."""
    stream = f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body = "".join(f"{i} 0 obj\n{one}\nendobj\n" for i, one in enumerate(objects, 1))
    end = "trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n0\n%%EOF\n"
    return f"%PDF-1.4\n{body}{end}".encode()


PDF = make_pdf("Oslo is new.")
